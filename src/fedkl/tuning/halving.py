"""Successive halving: all candidates begin, and at each rung the better half goes on.

What is decided at a rung follows from the runs' logs alone, up to the round of the rung. So a
tuning that was stopped decides again as it did, and goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fedkl import workers
from fedkl.config import Config
from fedkl.runs import MetricsLog, lock_directory
from fedkl.tuning.grid import Candidate
from fedkl.tuning.plan import Plan, half, write_plan

_LAST = 3
"""Evaluations that a score is the mean of: one alone is noisy."""


class Rung(NamedTuple):
    """The candidates that came to a round."""

    round: int
    scores: dict[int, tuple[float, ...]]
    """Of each candidate, by its number: for each seed; minus infinity where there is none."""


def create(path: Path, plan: Plan, configure: Callable[[Candidate, int], Config]) -> None:
    """Makes the tuning's directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is tried.
        configure: the config of a candidate and a seed.

    Raises:
        UserError: a config is wrong (nothing is written then), or the directory exists.
    """
    configs = {
        plan.name_of(number, seed): configure(candidate, seed).mapping()
        for number, candidate in enumerate(plan.candidates)
        for seed in plan.seeds
    }
    workers.create(path, configs, lambda aside: write_plan(aside, plan))


def go_on(path: Path, plan: Plan, train: workers.Trainer) -> list[Rung]:
    """Runs what is left.

    Args:
        path: the tuning's directory.
        plan: its plan.
        train: trains them, `plan.jobs` at a time where they are processes here.

    Returns:
        Every rung, the last one with those that came to the end.

    Raises:
        UserError: a run could not be trained as far as it should; the others of its rung were.
    """
    result: list[Rung] = []
    left = [*range(len(plan.candidates))]
    with lock_directory(path):
        for round in plan.rungs:
            # Seed by seed, as in a comparison.
            runs = [path / plan.name_of(number, seed) for seed in plan.seeds for number in left]
            until = None if round == plan.rungs[-1] else round
            train(runs, plan.jobs, until)
            rung = Rung(round, {number: _scores(path, plan, number, round) for number in left})
            left = sorted(best(rung)[: half(len(left))])
            result.append(rung)
    return result


def best(rung: Rung) -> list[int]:
    """The candidates of a rung, the best first; of equals the earlier."""
    return sorted(rung.scores, key=lambda number: (-fmean(rung.scores[number]), number))


def score(records: Sequence[Mapping[str, Any]], until: int, plan: Plan) -> float:
    """How well a run did up to a round: the mean of its last three evaluations.

    A return that is not a number counts as minus infinity, as does none at all.
    """
    last = plan.rungs[-1]
    returns = [
        -math.inf if record["return_mean"] is None else float(record["return_mean"])
        for record in records
        if record["round"] <= until
        and (record["round"] % plan.evaluated_every == 0 or record["round"] == last)
    ]
    return fmean(returns[-_LAST:]) if returns else -math.inf


def records_of(path: Path, plan: Plan, candidate: int) -> list[list[dict[str, Any]]]:
    """A candidate's logs, one for each seed."""
    names = [plan.name_of(candidate, seed) for seed in plan.seeds]
    return [MetricsLog(path / name / "metrics.jsonl").read() for name in names]


def _scores(path: Path, plan: Plan, candidate: int, until: int) -> tuple[float, ...]:
    return tuple(score(records, until, plan) for records in records_of(path, plan, candidate))
