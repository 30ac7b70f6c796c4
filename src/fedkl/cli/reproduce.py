"""`fedkl reproduce`: repeat the paper's experiments, and write the page about them."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.cli import cluster, common, console, interrupts, output
from fedkl.cli.precheck import REPORT
from fedkl.core.errors import UserError
from fedkl.core.text import counted

if TYPE_CHECKING:
    from fedkl.experiments.workers import Place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiment",
        metavar="NAME",
        help="an experiment (see `fedkl list`); all: every one; report: write the page about those "
        "whose results there are",
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="DIR",
        help="where runs are kept; of report, whose finished runs are added (default: nobody's)",
    )
    parser.add_argument("--quick", action="store_true", help="minutes: fewer rounds, one seed")
    parser.add_argument(
        "--missing", action="store_true", help="train only what --results has no table of"
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="add to what --run has what this command says beyond it: seeds, rounds, all of a "
        "quick look; train no more than that",
    )
    common.add_jobs(parser)
    parser.add_argument("--seeds", type=int, metavar="N", help="at the most; default: the table's")
    common.add_rounds(parser, "default: the experiment's own")
    common.add_settings(parser)
    common.add_ray(parser, "every run is a task")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="the tables of finished runs, to which report adds those of --run",
    )
    parser.add_argument(
        "--commit", default="", metavar="HASH", help="report: of the code that trained --run"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("docs"), metavar="DIR", help="report: where the page goes"
    )
    common.add_formats(parser)
    parser.set_defaults(trains=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.experiments.reproduce import plan as planning
        from fedkl.report.pictures import require_matplotlib

    require_matplotlib()
    if options.experiment == REPORT:
        return _report(options)
    if options.run is None:
        raise UserError("say with --run where the runs are to be kept")
    for name in ("seeds", "rounds"):
        if (given := getattr(options, name)) is not None and given < 1:
            raise UserError(f"--{name} must be at least 1, not {given}")
    plan = planning.ReproductionPlan(
        options.experiment,
        common.jobs_of(options),
        options.quick,
        options.seeds or 0,
        options.rounds or 0,
        common.settings_of(argparse.Namespace(set=options.set, rounds=None)),
    )
    if options.missing:
        plan = plan.without_known(options.results)
    with cluster.place(options) as place:
        if options.add:
            common.say_added(options, planning.add(options.run, plan, console.warn))
        else:
            planning.create(options.run, plan)
        _run_remaining(options.run, place, options)


def resume_reproduction(path: Path, place: Place | None) -> None:
    """Resume experiments, and say what came out."""
    from fedkl.cli.progress import say
    from fedkl.experiments.reproduce.plan import ReproductionPlan, add_missing

    for run in add_missing(path, ReproductionPlan.read(path)):
        say(f"{run.name} was not there, and is made")
    _run_remaining(path, place, argparse.Namespace(json=False, csv=False))


def _run_remaining(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    from fedkl.cli.progress import with_bar
    from fedkl.experiments.reproduce import EXPERIMENTS
    from fedkl.experiments.reproduce.plan import ReproductionPlan, run_remaining
    from fedkl.experiments.reproduce.text import finding_text

    plan = ReproductionPlan.read(path)
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
    """Add the finished runs of a directory to the results, if one is given; write the page."""
    from fedkl.experiments.reproduce.page import PAGE, add_runs, write_page
    from fedkl.experiments.reproduce.plan import ReproductionPlan
    from fedkl.training import binding

    if options.run is not None:
        if not ReproductionPlan.is_in(options.run):
            raise UserError(f"{options.run} holds no experiments: it has no reproduce.toml")
        if not options.commit:
            raise UserError("say with --commit which code trained the runs of --run")
        plan = ReproductionPlan.read(options.run)
        binding.require(plan, options.run, console.warn)
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
