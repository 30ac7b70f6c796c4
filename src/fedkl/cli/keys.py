"""`fedkl keys`: make the certificates and the clients' keys of a federation."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedkl.cli import console, interrupts
from fedkl.core.text import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="where they are kept")
    parser.add_argument("--clients", type=int, required=True, metavar="N", help="how many in all")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or an address that clients know the server by; may be repeated",
    )
    parser.add_argument(
        "--days", type=int, default=365, metavar="D", help="that the server's certificate holds"
    )


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.network import keys

    folder: Path = options.directory
    before = _names(folder)
    keys.make(folder, options.clients, options.host, options.days)
    made = sorted(_names(folder) - before)
    if not made:
        console.out.print(f"all keys are in {folder} already", soft_wrap=True)
        return
    console.out.print(f"made in {folder}: {counted(len(made), 'file')}", soft_wrap=True)
    console.out.print(
        f"Client N needs {folder / 'ca.crt'} and {folder / 'client-N.key'}, and nothing else. The "
        "other private files stay here.",
        soft_wrap=True,
    )


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
