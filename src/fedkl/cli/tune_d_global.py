"""`fedkl tune-d-global`: choose d_global from how far policies go without the global penalty."""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.cli import cluster, common, interrupts
from fedkl.core.errors import UserError
from fedkl.core.text import counted

if TYPE_CHECKING:
    from fedkl.config.config import Config
    from fedkl.experiments.workers import Place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_config(parser)
    for name, default, what in (
        ("--d-global-factor", 1.1, "d_global over the mean distance"),
        ("--d-local-factor", 1.5, "the new d_local over the preset's"),
    ):
        parser.add_argument(name, type=float, default=default, metavar="F", help=what)
    common.add_several(parser, first_seed=1000)
    parser.set_defaults(algorithm="fedkl", trains=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.config import config
        from fedkl.experiments import additions, d_global

    seeds = additions.seeds_of(options.seeds, options.first_seed, 1000)
    settings = common.settings_of(options)
    factors = {
        "--d-global-factor": options.d_global_factor,
        "--d-local-factor": options.d_local_factor,
    }
    for name, factor in factors.items():
        if not 0 < factor < math.inf:
            raise UserError(f"{name} must be a finite number above 0, not {factor}")

    def configure(algorithm: str, seed: int, own: dict[str, Any]) -> Config:
        chosen = settings | own
        return config.preset(options.preset, algorithm, seed, chosen, options.plugin)

    # In this order, so that a setting that only FedKL has is answered with those there are.
    without_penalty = configure(d_global.ALGORITHM, seeds[0], {})
    distance = configure("fedkl", seeds[0], {}).algorithm.distance
    plan = d_global.DGlobalPlan(
        **common.origin_of(options),
        seeds=seeds,
        rounds=without_penalty.federation.rounds,
        distance=distance,
        d_local=without_penalty.mapping()["learner"]["d_local"],
        d_global_factor=options.d_global_factor,
        d_local_factor=options.d_local_factor,
    )
    own = {"algorithm.distance": distance}
    with cluster.place(options) as place:
        d_global.create(options.run, plan, lambda seed: configure(d_global.ALGORITHM, seed, own))
        resume_measurement(options.run, place)


def resume_measurement(path: Path, place: Place | None) -> None:
    """Resume the measurement that d_global is made from, and say what came out."""
    from fedkl.cli import progress
    from fedkl.experiments import d_global
    from fedkl.experiments.grid import describe
    from fedkl.experiments.tune import write_best

    plan = d_global.DGlobalPlan.read(path)
    remaining = partial(d_global.run_remaining, path, plan)
    measured = progress.with_bar(plan.run_paths(path), remaining, place)
    best = write_best(path, plan, d_global.CHOSEN_FOR, measured.settings)
    progress.say(
        f"without the global penalty, with learner.d_local={plan.d_local:g}: mean distance "
        f"({plan.distance}) {measured.distance:.4g} over {counted(measured.rounds, 'round')}"
    )
    progress.say(f"for fedkl: {describe(measured.settings)}; written to {best}")
