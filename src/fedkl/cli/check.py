"""`fedkl check`: check everything in a run directory, or in one of several runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.cli import common, console, interrupts
from fedkl.core.errors import UserError
from fedkl.core.text import counted

if TYPE_CHECKING:
    from fedkl.training.verify import Fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_run(parser)
    common.add_consent(parser)
    parser.set_defaults(computes=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.training import plugin_consent, verify
        from fedkl.training.comparison import runs_in
        from fedkl.training.directory import RunDirectory
        from fedkl.training.plans import PLANS

    path = options.run
    planned = any((path / name).is_file() for name in PLANS)
    is_run = (path / "config.toml").is_file() and not planned
    runs = [path] if is_run else runs_in(path) or ([] if planned else [path])
    wrong = 0
    for one in runs:
        run = RunDirectory.open(one)
        if options.trust_plugins:
            plugin_consent.agree(one)
        found = _say(verify.check(run))
        wrong += found
        if not found:
            rounds = len(run.metrics.read())
            console.out.print(f"{one}: all is well, {counted(rounds, 'round')}", soft_wrap=True)
    if not is_run:
        wrong += _say(_several(path))
    if wrong:
        raise UserError(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong with {path}")


def _say(findings: Iterable[Fault]) -> int:
    """Print findings, and count those that are wrong."""
    wrong = 0
    for finding in findings:
        remedy = f"\n  what to do: {finding.remedy}" if finding.remedy else ""
        console.out.print(f"{finding.what}{remedy}", soft_wrap=True)
        wrong += bool(finding.remedy)
    return wrong


def _several(path: Path) -> Iterator[Fault]:
    """Find what is wrong with the plan of several runs, and with what they come to."""
    from fedkl.training import binding
    from fedkl.training.verify import Fault

    try:
        plan = common.plan_in(path)
    except UserError as error:
        yield Fault(str(error), "put back a copy")
        return
    if plan is not None:
        yield from binding.check_plan(plan, path)
        yield from binding.check_results(plan, path)
    elif (lost := common.recall_plan(path)) is not None:
        what = f"{path / lost.FILE} is missing, by which the runs here were made"
        yield Fault(what, "`fedkl resume` of the directory writes it again")
