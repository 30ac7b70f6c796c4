"""`fedkl tune`: choose an algorithm's settings from a grid, and write best.toml."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.cli import cluster, common, console, interrupts, output
from fedkl.core.errors import UserError
from fedkl.core.text import plain, short_keys
from fedkl.io import strict_json, tables

if TYPE_CHECKING:
    from fedkl.experiments.tune import Tried, TuningPlan
    from fedkl.experiments.workers import Place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_config(parser)
    parser.add_argument(
        "--algorithm", metavar="NAME", help="whose settings; no default but with --add"
    )
    parser.add_argument(
        "--grid",
        nargs="+",
        action="append",
        default=[],
        metavar="KEY=V,V",
        help="values to try; those of one --grid move together, several are multiplied",
    )
    parser.add_argument(
        "--halvings",
        type=int,
        metavar="H",
        help="how often the worse half is dropped: after 1/2^H of the rounds, 1/2^(H-1), ...; "
        "0 trains all to the end; default: 2, fewer where rounds or candidates are too few",
    )
    common.add_several(parser, first_seed=1000)
    common.add_to(parser, "seeds, candidates or rounds")
    common.add_formats(parser)
    parser.set_defaults(trains=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.experiments import additions, candidates, tune
        from fedkl.experiments.grid import parse_axes

    common.require_given(options, "algorithm", "grid")
    if options.halvings is not None and options.halvings < 0:
        raise UserError(f"--halvings must be at least 0, not {options.halvings}")
    request = candidates.TuningRequest(
        tune.TuningPlan(**common.origin_of(options), algorithm=options.algorithm or ""),
        partial(additions.seeds_of, options.seeds, options.first_seed, 1000),
        parse_axes(options.grid, "--grid"),
        additions.rounds_of(common.settings_of(options)),
        options.halvings,
    )
    with cluster.place(options) as place:
        _, made = candidates.begin(options.run, request, options.add, console.warn)
        common.say_added(options, made)
        _run_remaining(options.run, place, options)


def resume_tuning(path: Path, place: Place | None) -> None:
    """Resume a tuning, and print the table of what was tried."""
    _run_remaining(path, place, argparse.Namespace(json=False, csv=False))


def _run_remaining(path: Path, place: Place | None, options: argparse.Namespace) -> None:
    from fedkl.cli import progress
    from fedkl.experiments import tune
    from fedkl.experiments.grid import describe

    plan = tune.TuningPlan.read(path)
    remaining = partial(tune.run_remaining, path, plan)
    result = progress.with_bar(plan.run_paths(path), remaining, place, plan.rounds)
    progress.require_unstalled(plan.run_paths(path))
    everything = tune.tried(path, plan, result)
    winner = tune.write_tried(path, plan, result, everything)
    best = tune.write_best(path, plan, plan.algorithm, winner.settings)
    written = strict_json.decode((path / tune.TRIED).read_bytes())
    rows = [
        {"number": one.number, **one.settings}
        | {f"round {rung}": one.means.get(rung) for rung in plan.rungs}
        | {"env_steps": sum(one.env_steps), "outcome": _outcome(plan, one, winner)}
        for one in everything
    ]
    if not output.answered(options, written, rows):
        tables.show(_table(plan, everything, winner), console.out)
    steps = sum(sum(one.env_steps) for one in everything)
    progress.say(
        f"best for {plan.algorithm}: {describe(winner.settings)}; {steps:,} environment steps "
        f"for all; written to {best}"
    )
    progress.say_stalled(plan.run_paths(path))


def _table(plan: TuningPlan, everything: Sequence[Tried], winner: Tried) -> tables.Table:
    """Make a row for each candidate: its settings, its scores, what it cost, how it ended."""
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


def _outcome(plan: TuningPlan, one: Tried, winner: Tried) -> str:
    if plan.rungs[-1] not in one.rungs:
        return "dropped"
    return "best" if one is winner else ""


def _number(score: float | None) -> str:
    if score is None:
        return ""
    return f"{score:.4g}" if math.isfinite(score) else "none"
