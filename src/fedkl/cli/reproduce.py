"""The command that repeats the paper's experiments, and makes the page about them."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from fedkl.cli import cluster, console, output
from fedkl.cli.options import settings_of
from fedkl.cli.precheck import REPORT
from fedkl.cli.several import with_bar
from fedkl.core.errors import UserError
from fedkl.core.text import counted
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.page import PAGE, add_runs, write_page
from fedkl.experiments.reproduce.plan import (
    Plan,
    add_missing,
    create,
    is_reproduction,
    read_plan,
    run_remaining,
)
from fedkl.experiments.reproduce.text import finding_text
from fedkl.experiments.workers import Place
from fedkl.report.pictures import require_matplotlib


def reproduce(options: argparse.Namespace) -> None:
    require_matplotlib()
    if options.experiment == REPORT:
        return _report(options)
    if options.run is None:
        raise UserError("say with --run where the runs are to be kept")
    for name in ("seeds", "rounds", "jobs"):
        if (given := getattr(options, name)) is not None and given < 1:
            raise UserError(f"--{name} must be at least 1, not {given}")
    plan = Plan(
        options.experiment,
        options.jobs,
        options.quick,
        options.seeds or 0,
        options.rounds or 0,
        settings_of(argparse.Namespace(set=options.set, rounds=None)),
    )
    if options.missing:
        plan = plan.without_known(options.results)
    with cluster.place(options) as place:
        create(options.run, plan)
        _run_remaining(options.run, place, options)


def resume_reproduction(path: Path, place: Place | None) -> None:
    """Resume experiments, and say what came out."""
    add_missing(path, read_plan(path))
    _run_remaining(path, place, argparse.Namespace(json=False, csv=False))


def _run_remaining(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    plan = read_plan(path)
    runs = plan.runs(path)
    rounds = sum(run.case.rounds for run in runs)
    remaining = partial(run_remaining, path, plan)
    findings = with_bar([run.path for run in runs], remaining, place, rounds)
    record = {
        name: {
            "figure": f"{path / name}.png",
            "verdicts": [verdict._asdict() for verdict in finding.verdicts],
            "text": finding.text,
            "rows": finding.rows,
        }
        for name, finding in findings.items()
    }
    rows = [{"experiment": n, **row} for n, finding in findings.items() for row in finding.rows]
    if output.answered(options, record, rows):
        return
    if plan.known:
        console.out.print(
            f"{counted(len(runs), 'run')} trained, {len(plan.known)} left out; for the verdicts: "
            f"fedkl reproduce report --run {path} --commit HASH",
            soft_wrap=True,
            markup=False,
        )
    for name, finding in findings.items():
        text = finding_text(EXPERIMENTS[name], finding)
        console.out.print(f"{name}\n\n{text}", soft_wrap=True, markup=False)
        console.out.print(f"figure: {path / name}.png", soft_wrap=True)


def _report(options: argparse.Namespace) -> None:
    """Adds the finished runs of a directory to the results, if one is given; writes the page."""
    if options.run is not None:
        if not is_reproduction(options.run):
            raise UserError(f"{options.run} holds no experiments: it has no reproduce.toml")
        if not options.commit:
            raise UserError("say with --commit which code trained the runs of --run")
        plan = read_plan(options.run)
        added = add_runs(options.results, plan, plan.runs(options.run), options.commit)
        console.talk.print(f"{counted(len(added), 'run')} added", soft_wrap=True)
    judged = write_page(options.results, options.out)
    rows = [
        {"experiment": one.experiment.name, "runs": one.there, "planned": one.planned}
        | verdict._asdict()
        for one in judged
        if one.finding is not None
        for verdict in one.finding.verdicts
    ]
    if output.answered(options, {"page": str(options.out / PAGE), "verdicts": rows}, rows):
        return
    for row in rows:
        console.out.print(
            f"{row['experiment']}, {row['claim']}: {row['verdict']} ({row['runs']} of "
            f"{row['planned']} runs)",
            soft_wrap=True,
            markup=False,
        )
    console.out.print(f"page: {options.out / PAGE}", soft_wrap=True)
