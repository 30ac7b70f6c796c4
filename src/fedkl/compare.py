"""Several algorithms, settings and seeds, side by side in worker processes.

A comparison is a directory of ordinary runs (`fedkl.workers`), and goes on with `fedkl resume DIR`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedkl import workers
from fedkl.config import Config
from fedkl.errors import UserError
from fedkl.runs import lock_directory
from fedkl.runs.comparison import Plan, is_comparison, name_of, read_plan, runs_of, write_plan

__all__ = ["Plan", "create", "go_on", "is_comparison", "read_plan", "refuse_seen_seeds", "runs_of"]


Configure = Callable[[str, int, Mapping[str, Any]], Config]
"""The config of an algorithm, a seed, and settings that are varied."""


def create(path: Path, plan: Plan, configure: Configure) -> None:
    """Makes the comparison's directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is compared.
        configure: makes the config of each run.

    Raises:
        UserError: a config is wrong or its settings were chosen on a seed of the plan (nothing is
            written then), or the directory exists.
    """
    configs = {
        name_of(cell, seed): configure(algorithm, seed, settings)
        for cell, (algorithm, settings) in plan.cells().items()
        for seed in plan.seeds
    }
    refuse_seen_seeds(configs.values(), plan.seeds)
    mappings = {name: config.mapping() for name, config in configs.items()}
    workers.create(path, mappings, lambda aside: write_plan(aside, plan))


def refuse_seen_seeds(configs: Iterable[Config], seeds: Collection[int]) -> None:
    """Whoever chose settings on a seed cannot judge them by it.

    Raises:
        UserError: settings of these configs were chosen on one of the seeds.
    """
    seen = {seed for config in configs for seed in config.tuned_on}
    if overlap := sorted(seen & {*seeds}):
        raise UserError(
            f"settings were chosen on seeds {', '.join(map(str, overlap))} (tuned_on), which "
            "cannot judge them; give others with --first-seed"
        )


def go_on(path: Path, plan: Plan, train: workers.Trainer) -> None:
    """Runs what is left.

    Args:
        path: the comparison's directory.
        plan: its plan.
        train: trains them, `plan.jobs` at a time where they are processes here.

    Raises:
        UserError: a run could not be finished; the others were.
    """
    with lock_directory(path):
        train(runs_of(path, plan), plan.jobs)
