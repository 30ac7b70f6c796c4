"""Several algorithms, several seeds, side by side in worker processes.

A comparison is a directory of ordinary runs (`fedkl.workers`), and goes on with `fedkl resume DIR`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedkl import workers
from fedkl.config import Config
from fedkl.errors import UserError
from fedkl.runs import lock_directory
from fedkl.runs.comparison import Plan, is_comparison, name_of, read_plan, runs_of, write_plan

__all__ = ["Plan", "create", "go_on", "is_comparison", "read_plan", "runs_of"]


def create(path: Path, plan: Plan, configure: Callable[[str, int], Config]) -> None:
    """Makes the comparison's directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is compared.
        configure: the config of an algorithm and a seed.

    Raises:
        UserError: a config is wrong or its settings were chosen on a seed of the plan (nothing is
            written then), or the directory exists.
    """
    configs = {
        name_of(algorithm, seed): configure(algorithm, seed)
        for algorithm in plan.algorithms
        for seed in plan.seeds
    }
    seen = {seed for config in configs.values() for seed in config.tuned_on}
    if overlap := sorted(seen & {*plan.seeds}):
        raise UserError(
            f"settings were chosen on seeds {', '.join(map(str, overlap))} (tuned_on), which "
            "cannot judge them; give others with --first-seed"
        )
    mappings = {name: config.mapping() for name, config in configs.items()}
    workers.create(path, mappings, lambda aside: write_plan(aside, plan))


def go_on(path: Path, plan: Plan, show: Callable[[str], None], tick: Callable[[], None]) -> None:
    """Runs what is left, at most `plan.jobs` at a time.

    Args:
        path: the comparison's directory.
        plan: its plan.
        show: is told in a line of every run that starts or ends.
        tick: is called a few times a second while runs go on.

    Raises:
        UserError: a run could not be finished; the others were.
    """
    with lock_directory(path):
        workers.run_all(runs_of(path, plan), plan.jobs, show, tick)
