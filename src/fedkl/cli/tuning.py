"""The commands that choose settings."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedkl.cli import cluster, console, output
from fedkl.cli.options import seeds_of, settings_of
from fedkl.cli.several import say, with_bar
from fedkl.config import config
from fedkl.core.errors import UserError
from fedkl.core.text import plain, short_keys
from fedkl.experiments import d_global
from fedkl.experiments import tune as halving
from fedkl.experiments import tune as results
from fedkl.experiments.grid import describe, parse_grids
from fedkl.experiments.tune import Plan, read_plan, rungs
from fedkl.experiments.workers import Place
from fedkl.io import strict_json, tables


def tune(options: argparse.Namespace) -> None:
    seeds, settings = seeds_of(options), settings_of(options)
    if options.halvings is not None and options.halvings < 0:
        raise UserError(f"--halvings must be at least 0, not {options.halvings}")
    candidates = parse_grids(options.grid, settings)

    def configure(candidate: dict[str, Any], seed: int) -> config.Config:
        chosen = settings | candidate
        return config.preset(options.preset, options.algorithm, seed, chosen, options.plugin)

    first = configure(candidates[0], seeds[0])
    every = first.evaluation.every
    plan = Plan(
        **_origin(options),
        algorithm=options.algorithm,
        seeds=seeds,
        rungs=rungs(first.federation.rounds, options.halvings, len(candidates), every),
        evaluated_every=every,
        candidates=tuple(candidates),
    )
    with cluster.place(options) as place:
        halving.create(options.run, plan, configure)
        _go_on_tuning(options.run, place, options)


def go_on_tuning(path: Path, place: Place | None) -> None:
    """Goes on with a tuning, and prints the table of what was tried."""
    _go_on_tuning(path, place, argparse.Namespace(json=False, csv=False))


def _go_on_tuning(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    plan = read_plan(path)
    numbers = range(len(plan.candidates))
    runs = [path / plan.name_of(number, seed) for number in numbers for seed in plan.seeds]
    came_to = with_bar(runs, partial(halving.go_on, path, plan), place, plan.rounds)
    everything = results.tried(path, plan, came_to)
    winner = results.write_tried(path, plan, came_to, everything)
    best = results.write_best(path, plan, plan.algorithm, winner.settings)
    written = strict_json.decode((path / results.TRIED).read_bytes())
    rows = [
        {"number": one.number, **one.settings}
        | {f"round {rung}": one.means.get(rung) for rung in plan.rungs}
        | {"env_steps": sum(one.env_steps), "outcome": _outcome(plan, one, winner)}
        for one in everything
    ]
    if not output.answered(options, written, rows):
        tables.show(_table(plan, everything, winner), console.out)
    steps = sum(sum(one.env_steps) for one in everything)
    say(
        f"best for {plan.algorithm}: {describe(winner.settings)}; {steps:,} environment steps "
        f"for all; written to {best}{_but_not(plan.settings)}"
    )


def tune_d_global(options: argparse.Namespace) -> None:
    seeds, settings = seeds_of(options), settings_of(options)
    factors = {
        "--d-global-factor": options.d_global_factor,
        "--d-local-factor": options.d_local_factor,
    }
    for name, factor in factors.items():
        if not 0 < factor < math.inf:
            raise UserError(f"{name} must be a finite number above 0, not {factor}")

    def configure(algorithm: str, seed: int, own: dict[str, Any]) -> config.Config:
        chosen = settings | own
        return config.preset(options.preset, algorithm, seed, chosen, options.plugin)

    # In this order, so that a setting that only FedKL has is answered with those there are.
    without_penalty = configure(d_global.ALGORITHM, seeds[0], {})
    distance = configure("fedkl", seeds[0], {}).algorithm.distance
    plan = d_global.Plan(
        **_origin(options),
        seeds=seeds,
        rounds=without_penalty.federation.rounds,
        distance=distance,
        d_local=without_penalty.learner.d_local,
        d_global_factor=options.d_global_factor,
        d_local_factor=options.d_local_factor,
    )
    own = {"algorithm.distance": distance}
    with cluster.place(options) as place:
        d_global.create(options.run, plan, lambda seed: configure(d_global.ALGORITHM, seed, own))
        go_on_measurement(options.run, place)


def go_on_measurement(path: Path, place: Place | None) -> None:
    """Goes on with the measurement that d_global is made from, and says what came out."""
    plan = d_global.read_plan(path)
    measured = with_bar(plan.runs(path), partial(d_global.go_on, path, plan), place)
    best = results.write_best(path, plan, "fedkl", measured.settings)
    say(
        f"without the global penalty, with learner.d_local={plan.d_local:g}: mean distance "
        f"({plan.distance}) {measured.distance:.4g} over {measured.rounds} rounds"
    )
    say(f"for fedkl: {describe(measured.settings)}; written to {best}{_but_not(plan.settings)}")


def _origin(options: argparse.Namespace) -> dict[str, Any]:
    """What both plans say of the preset; paths hold from anywhere."""
    preset = options.preset
    return {
        "preset": str(Path(preset).resolve()) if preset.endswith(".toml") else preset,
        "plugins": tuple(str(path.resolve()) for path in options.plugin),
        "settings": tuple(options.set),
        "jobs": options.jobs,
    }


def _but_not(settings: Sequence[str]) -> str:
    """That what held for all runs must be given again to hold for others."""
    return f" (without --set {shlex.join(settings)})" if settings else ""


def _table(plan: Plan, everything: Sequence[results.Tried], winner: results.Tried) -> tables.Table:
    """A row for each candidate: its settings, its scores, what it cost, how it ended."""
    keys = list(plan.candidates[0])
    titles = ["", *short_keys(keys).values(), *(f"round {rung}" for rung in plan.rungs)]
    rows = [
        (
            str(one.number),
            *(plain(value) for value in one.settings.values()),
            *(_number(one.means.get(rung)) for rung in plan.rungs),
            f"{sum(one.env_steps):,}",
            _outcome(plan, one, winner),
        )
        for one in everything
    ]
    words = [*range(1, 1 + len(keys)), len(titles) + 1]
    return tables.Table((*titles, "steps", ""), rows, words)


def _outcome(plan: Plan, one: results.Tried, winner: results.Tried) -> str:
    if plan.rungs[-1] not in one.rungs:
        return "dropped"
    return "best" if one is winner else ""


def _number(score: float | None) -> str:
    if score is None:
        return ""
    return f"{score:.4g}" if math.isfinite(score) else "none"
