"""`fedkl check`: check everything in a run directory."""

from __future__ import annotations

import argparse

from fedkl.cli import common, console, interrupts
from fedkl.core.errors import UserError
from fedkl.core.text import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_run(parser)
    common.add_consent(parser)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.training import plugin_consent, verify
        from fedkl.training.comparison import runs_in
        from fedkl.training.directory import RunDirectory

    path = options.run
    if not path.is_dir():
        raise UserError(f"there is no directory '{path}'")
    runs = [path] if (path / "config.toml").is_file() else runs_in(path) or [path]
    wrong = 0
    for one in runs:
        run = RunDirectory.open(one)
        if options.trust_plugins:
            plugin_consent.agree(one)
        findings = verify.check(run)
        wrong += len(findings)
        for finding in findings:
            console.out.print(f"{finding.what}\n  what to do: {finding.remedy}", soft_wrap=True)
        if not findings:
            rounds = len(run.metrics.read())
            console.out.print(f"{one}: all is well, {counted(rounds, 'round')}", soft_wrap=True)
    if wrong:
        raise UserError(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong with {path}")
