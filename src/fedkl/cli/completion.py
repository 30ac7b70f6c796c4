"""`fedkl completion`: print what lets a shell complete commands, options and names.

The script is made once and holds everything: nothing of fedkl runs while a user types.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fedkl.cli import console, interrupts
from fedkl.config import presets
from fedkl.core.errors import MissingPackageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="which shell")


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.algorithms import ALGORITHMS
        from fedkl.cli.parser import parser
        from fedkl.experiments.reproduce import EXPERIMENTS

    if find_spec("shtab") is None:
        raise MissingPackageError("completion needs shtab", "completion")
    import shtab

    algorithms = [*ALGORITHMS]
    names = {
        "preset": [*presets.summaries()],
        "algorithm": algorithms,
        "algorithms": algorithms,
        "experiment": [*EXPERIMENTS],
    }
    top = parser()
    for action in _actions(top):
        if action.type is Path:
            folder = action.metavar == "DIR"
            action.complete = shtab.DIRECTORY if folder else shtab.FILE  # type: ignore[attr-defined]
        # Others can be given, too (a file, a plugin's): this parser parses nothing.
        elif action.dest in names and action.choices is None:
            action.choices = names[action.dest]
    console.out.print(shtab.complete(top, options.shell), soft_wrap=True, end="")


def _actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in of._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)
