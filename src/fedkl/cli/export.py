"""`fedkl export`: write a run's policy to a file that needs no fedkl. It does without JAX."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedkl.cli import common, console, interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_run(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="FILE.onnx or FILE.npz")
    parser.add_argument(
        "--client", type=int, metavar="N", help="whose policy; default: all share it"
    )
    common.add_best(parser)
    common.add_accept_changes(parser)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.policies.export import export

    given = (options.client, options.best, options.accept_changes)
    policy = export(options.run, options.file, *given)
    console.out.print(f"policy after round {policy.round}: {options.file}", soft_wrap=True)
