"""What the command line understands: a file for each group of commands.

Options that several commands have are in `shared`, so that each is spelled and explained once.
"""

from __future__ import annotations

import argparse
from typing import Any

from fedkl.cli.parser import looking, network, several, single, theory
from fedkl.cli.parser.base import Parser


class _Version(argparse._VersionAction):
    """Looks the version up when it is asked for, which takes longer than to parse."""

    def __call__(self, *arguments: Any) -> None:
        from importlib import metadata

        self.version = f"fedkl {metadata.version('fedkl')}"
        super().__call__(*arguments)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands.

    A command is named by its module and function, and imported only when it is run: most need
    JAX, which takes a second, and those about theory do not.
    """
    top = Parser(
        prog="fedkl", description="Federated reinforcement learning across worlds that differ."
    )
    top.add_argument("--version", action=_Version)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for group in (single, several, looking, network, theory):
        group.add(commands)
    return top
