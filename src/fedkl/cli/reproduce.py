"""The command that repeats an experiment of the paper."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from fedkl import config
from fedkl.cli import cluster, console, output
from fedkl.cli.options import seeds_of, settings_of
from fedkl.cli.several import with_bar
from fedkl.errors import UserError
from fedkl.report.pictures import require_matplotlib
from fedkl.reproduce import EXPERIMENTS, Case
from fedkl.reproduce.plan import Plan, create, go_on, read_plan
from fedkl.texts import did_you_mean
from fedkl.workers import Place


def reproduce(options: argparse.Namespace) -> None:
    if options.experiment not in EXPERIMENTS:
        hint = did_you_mean(options.experiment, EXPERIMENTS)
        raise UserError(
            f"there is no experiment '{options.experiment}'{hint}, only {', '.join(EXPERIMENTS)}"
        )
    require_matplotlib()
    experiment = EXPERIMENTS[options.experiment]
    plan = Plan(experiment.name, seeds_of(options), options.jobs)
    given = {"federation.rounds": experiment.rounds} | settings_of(options)

    def configure(case: Case, seed: int) -> config.Config:
        settings = {**case.settings, **given}
        return config.preset(case.preset, options.algorithm, seed, settings, options.plugin)

    with cluster.place(options) as place:
        create(options.run, plan, configure)
        _go_on(options.run, place, options)


def go_on_reproduction(path: Path, place: Place | None) -> None:
    """Goes on with an experiment, and says what came out."""
    _go_on(path, place, argparse.Namespace(json=False, csv=False))


def _go_on(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    plan = read_plan(path)
    finding = with_bar(plan.runs(path), partial(go_on, path, plan), place)
    figure = f"{path / plan.experiment}.png"
    record = {"figure": figure, "text": finding.text, "rows": finding.rows}
    if output.answered(options, record, finding.rows):
        return
    console.out.print(finding.text, soft_wrap=True, markup=False)
    console.out.print(f"figure: {figure}", soft_wrap=True)
