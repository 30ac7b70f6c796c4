"""The command that makes a federation's keys."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedkl.cli import console
from fedkl.network import keys as making


def keys(options: argparse.Namespace) -> None:
    folder: Path = options.directory
    before = _names(folder)
    making.make(folder, options.clients, options.host, options.days)
    made = sorted(_names(folder) - before)
    if not made:
        console.out.print(f"all keys are in {folder} already", soft_wrap=True)
        return
    console.out.print(f"made in {folder}: {len(made)} files", soft_wrap=True)
    console.out.print(
        f"Client N needs {folder / 'ca.crt'} and {folder / 'client-N.key'}, and nothing else. The "
        "other private files stay here.",
        soft_wrap=True,
    )


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
