"""The command that checks everything in a run directory."""

from __future__ import annotations

import argparse

from fedkl import trust
from fedkl.checking import check
from fedkl.cli import console
from fedkl.errors import UserError
from fedkl.runs import RunDirectory
from fedkl.runs.comparison import runs_in
from fedkl.texts import counted


def check_(options: argparse.Namespace) -> None:
    path = options.run
    if not path.is_dir():
        raise UserError(f"there is no directory '{path}'")
    runs = [path] if (path / "config.toml").is_file() else runs_in(path) or [path]
    wrong = 0
    for one in runs:
        run = RunDirectory.open(one)
        if options.trust_plugins:
            trust.agree(one)
        findings = check(run)
        wrong += len(findings)
        for finding in findings:
            console.out.print(f"{finding.what}\n  what to do: {finding.remedy}", soft_wrap=True)
        if not findings:
            rounds = len(run.metrics.read())
            console.out.print(f"{one}: all is well, {counted(rounds, 'round')}", soft_wrap=True)
    if wrong:
        raise UserError(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong with {path}")
