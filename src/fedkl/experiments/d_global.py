"""The paper's heuristic for d_global: how far do policies go if nothing holds them?

Train without the global penalty, see how far the local policies are from the global one at the end
of a round, and take a d_global slightly larger than that, with a larger d_local. Training without
the global penalty is FedAvg, which then measures in FedKL's distance.

tune-d-global.toml   the plan
fedavg-seedS/        a run for each seed
tuning.json          at the end: what was measured
best.toml            at the end: a config file with FedKL's d_global and d_local
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

from fedkl.config.config import Config
from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.experiments import workers
from fedkl.experiments.additions import settings_given
from fedkl.experiments.grid import Candidate
from fedkl.experiments.tune import BEST, TRIED, best_file
from fedkl.io import strict_json
from fedkl.io.files import write_atomically
from fedkl.io.locks import lock_directory
from fedkl.training.comparison import name_of
from fedkl.training.metrics import MetricsLog
from fedkl.training.plans import RunsPlan

ALGORITHM = "fedavg"
"""FedKL without its penalty."""
CHOSEN_FOR = "fedkl"
"""The algorithm whose settings are chosen."""


@dataclass(frozen=True)
class DGlobalPlan(RunsPlan):
    """The plan of a measurement of d_global."""

    FILE = "tune-d-global.toml"

    preset: str = setting("", "what the runs are made from; an absolute path if it is a file")
    plugins: tuple[str, ...] = setting((), "files that --plugin gave")
    settings: tuple[str, ...] = setting((), "what --set gave")
    seeds: tuple[int, ...] = setting((), "the seeds of the runs", low=0)
    rounds: int = setting(1, "of each run", low=1)
    jobs: int = setting(1, "how many runs go on at a time", low=1)
    distance: str = setting("", "what is measured: FedKL's algorithm.distance")
    d_local: float = setting(1.0, "learner.d_local that the runs are trained with", above=0)
    d_global_factor: float = setting(1.1, "d_global over the mean distance", above=0)
    d_local_factor: float = setting(1.5, "the new d_local over that of the runs", above=0)

    def run_paths(self, path: Path) -> list[Path]:
        """Return the run directories."""
        return [path / name_of(ALGORITHM, seed) for seed in self.seeds]

    def settings_by_run(self) -> dict[str, dict[str, Any]]:
        """Return what the plan says of each run: all but what the preset does."""
        shared = {
            "preset": self.preset,
            "algorithm.name": ALGORITHM,
            "plugins": self.plugins,
            **settings_given(self.settings),
            "algorithm.distance": self.distance,
            "learner.d_local": self.d_local,
            "federation.rounds": self.rounds,
        }
        return {name_of(ALGORITHM, seed): {**shared, "seed": seed} for seed in self.seeds}

    def results(self, path: Path) -> dict[str, bytes] | None:
        """Return tuning.json and best.toml; None while runs have rounds left."""
        if not all(workers.is_there(run, None) for run in self.run_paths(path)):
            return None
        measured, written = _measured(self, path)
        return {TRIED: written, BEST: best_file(self, CHOSEN_FOR, measured.settings)}

    @classmethod
    def parse(cls, values: dict[str, Any], file: str) -> Self:
        plan = super().parse(values, file)
        if not plan.seeds:
            raise UserError(f"{file}.seeds must not be empty")
        return plan


class MeasuredDistance(NamedTuple):
    """The measured distance, and the settings made of it."""

    distance: float
    """The mean distance between the global policy and a local one after a round."""
    rounds: int
    """It is the mean of so many, of all seeds together."""
    settings: Candidate
    """d_global and d_local for FedKL."""


def create(path: Path, plan: DGlobalPlan, configure: Callable[[int], Config]) -> None:
    """Make the directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is measured.
        configure: the config of a seed.

    Raises:
        UserError: a config is wrong (nothing is written then), or the directory exists.
    """
    configs = {name_of(ALGORITHM, seed): configure(seed).mapping() for seed in plan.seeds}
    workers.create(path, plan, configs)


def run_remaining(path: Path, plan: DGlobalPlan, train: workers.Trainer) -> MeasuredDistance:
    """Train the remaining rounds, measure, and write tuning.json.

    Args:
        path: the directory.
        plan: its plan.
        train: trains them, `plan.jobs` at a time where they are processes here.

    Raises:
        UserError: a run could not be finished, or there was nothing to measure.
    """
    with lock_directory(path):
        train(plan.run_paths(path), plan.jobs)
        measured, written = _measured(plan, path)
        write_atomically(path / TRIED, written)
    return measured


def _measured(plan: DGlobalPlan, path: Path) -> tuple[MeasuredDistance, bytes]:
    """Return what finished runs come to, and the contents of tuning.json."""
    logs = [MetricsLog(run / "metrics.jsonl").read() for run in plan.run_paths(path)]
    # A run that was made longer is measured like the others.
    logs = [[record for record in log if record["round"] <= plan.rounds] for log in logs]
    measured = _from_logs(plan, logs)
    everything = dataclasses.asdict(plan) | {
        "distance_mean": measured.distance,
        "distance_rounds": measured.rounds,
        "env_steps": sum(log[-1]["env_steps"] for log in logs),
        "chosen": measured.settings,
    }
    return measured, strict_json.encode(everything, indent=2) + b"\n"


def _from_logs(plan: DGlobalPlan, logs: list[list[dict[str, Any]]]) -> MeasuredDistance:
    # A client whose iterations were all rolled back went nowhere, and says nothing.
    moved = [
        [c["distance_global"] for c in record["clients"] if c["distance_global"] > 0]
        for log in logs
        for record in log
    ]
    found = [fmean(distances) for distances in moved if distances]
    mean = fmean(found) if found else 0.0
    if mean <= 0:
        raise UserError("no local policy moved away from the global one: there is no d_global")
    settings = {
        "algorithm.d_global": rounded(plan.d_global_factor * mean),
        "learner.d_local": rounded(plan.d_local_factor * plan.d_local),
    }
    return MeasuredDistance(mean, len(found), settings)


def rounded(value: float) -> float:
    """To three significant digits."""
    return float(f"{value:.3g}")
