"""Statistics of learning curves: collapses, rounds to a target, and what goes before a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, IN_PART, OPEN
from fedkl.report.statistics import Estimate, FloatArray, IntArray, settling

COLLAPSED = 0.25
"""A run has collapsed in a round if it lost more than this share of all that it had gained."""
STAGE = 10
"""Rounds that count as one stage of training."""


class Collapses(NamedTuple):
    """The collapses of a learning curve."""

    number: int
    """How often it collapsed: rounds side by side are one time."""
    share: float
    """Of the rounds after settling, those in which it was collapsed."""
    depth: float
    """The largest share of what it had gained that it lost; above 1 it fell below its start."""


def lost_share(values: FloatArray) -> FloatArray:
    """Return the share of its gain so far that a run has lost, in every round.

    Gained is the best return so far less the first one; nothing gained, nothing lost.

    Example:
        >>> lost_share(np.array([-40.0, -20.0, -30.0, -10.0, -47.5])).tolist()
        [0.0, 0.0, 0.5, 0.0, 1.25]
    """
    best = np.maximum.accumulate(values)
    gained = best - values[0]
    return np.where(gained > 0, (best - values) / np.where(gained > 0, gained, 1.0), 0.0)


def collapses(values: FloatArray) -> Collapses:
    """Measure how often, for how long and how deep a run's return collapsed after it had settled.

    Example:
        Of the six rounds after settling three are collapsed, in two times.

        >>> collapses(np.array([-40.0, -30.0, -20.0, -10.0, -30.0, -25.0, -10.0, -20.0, -10.0]))
        Collapses(number=2, share=0.5, depth=0.6666666666666666)
    """
    lost = lost_share(values)[settling(len(values)) :]
    fallen = lost > COLLAPSED
    starts = fallen & ~np.concatenate([[False], fallen[:-1]])
    return Collapses(int(starts.sum()), float(fallen.mean()), float(lost.max(initial=0.0)))


def kaplan_meier(times: Sequence[float], reached: Sequence[bool]) -> list[tuple[float, float]]:
    """The share of runs that have not reached a target yet, after each time at which one did.

    A run that ended before it reached the target counts as long as it was watched (Kaplan and
    Meier, 1958).

    Args:
        times: when each run reached it, or ended.
        reached: whether it did.

    Example:
        >>> kaplan_meier([10, 20, 20, 30], [True, True, False, True])
        [(10.0, 0.75), (20.0, 0.5), (30.0, 0.0)]
    """
    left, curve = 1.0, []
    for time in sorted({float(t) for t, done in zip(times, reached, strict=True) if done}):
        watched = sum(t >= time for t in times)
        done = sum(t == time and d for t, d in zip(times, reached, strict=True))
        left *= 1 - done / watched
        curve.append((time, left))
    return curve


def median_time(times: Sequence[float], reached: Sequence[bool]) -> float | None:
    """The time by which half of the runs have reached a target; None: they never have.

    Example:
        >>> median_time([10, 20, 30], [True, True, False]), median_time([10, 20], [False, False])
        (20.0, None)
    """
    return next((time for time, left in kaplan_meier(times, reached) if left <= 0.5), None)


def stages(runs: Sequence[object], rounds: Sequence[float], first: int) -> IntArray:
    """Return the stage of its run's training that each round belongs to, as a number.

    Args:
        runs: which run each round is of.
        rounds: their numbers.
        first: the round with which the first stage begins.

    Example:
        >>> stages([3, 3, 3, 4], [2, 11, 12, 2], first=2).tolist()
        [0, 0, 1, 2]
    """
    of_each = [(run, (int(t) - first) // STAGE) for run, t in zip(runs, rounds, strict=True)]
    numbers = {stage: number for number, stage in enumerate(dict.fromkeys(of_each))}
    return np.array([numbers[stage] for stage in of_each], np.int64)


def within_stages(values: FloatArray, stage: IntArray) -> FloatArray:
    """Return ranks among the rounds of a stage, from -1 to 1.

    Example:
        >>> within_stages(np.array([5.0, 9.0, 7.0, 0.0]), np.array([0, 0, 0, 1])).tolist()
        [-1.0, 1.0, 0.0, 0.0]
    """
    result = np.zeros(len(values))
    for one in np.unique(stage):
        here = stage == one
        n = int(here.sum())
        if n > 1:
            result[here] = 2 * (rankdata(values[here]) - 1) / (n - 1) - 1
    return result


def correlation(x: FloatArray, y: FloatArray) -> float:
    """Of two columns of ranks; NaN if one does not vary."""
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size else float("nan")


def verdict(estimate: Estimate) -> str:
    """Judge a claim by an estimate that it says is above 0."""
    if estimate.low is None or estimate.high is None:
        return OPEN
    if estimate.low > 0:
        return HOLDS
    return FAILS if estimate.high <= 0 else OPEN


def together(verdicts: Sequence[str]) -> str:
    """The verdict on a claim that has several parts.

    Example:
        >>> together(["holds", "holds"]), together(["holds", "cannot be told"])
        ('holds', 'holds in part')
        >>> together(["does not hold", "cannot be told"]), together(["cannot be told"])
        ('does not hold', 'cannot be told')
    """
    found = set(verdicts)
    if found == {HOLDS}:
        return HOLDS
    if found & {HOLDS, IN_PART}:
        return IN_PART
    return FAILS if FAILS in found else OPEN
