"""The statistics of a report: few seeds, so robust averages and honest intervals.

Across seeds we report the interquartile mean (IQM): the mean of the middle half. It ignores a
single lucky or broken seed, as the median does, but wastes fewer of the few numbers there are.
How far it can be trusted is told by a percentile bootstrap interval over seeds: the seeds are
drawn again with replacement, the statistic is computed for each draw, and the interval spans the
middle 95 % of the results. It can never reach beyond the lowest and the highest seed, so with a
handful of seeds it is rough and rather too narrow; the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

CONFIDENCE = 0.95
RESAMPLES = 5000
FINAL_FRACTION = 10  # one round in so many belongs to the final window
MOST_SETTLING = 10  # rounds whose drops are not counted, of a run that is long enough
# Every interval starts its own generator here, so that a report made twice is the same report.
_BOOTSTRAP_SEED = 20
_COLUMNS_AT_ONCE = 512


@dataclass(frozen=True)
class Estimate:
    """A number and its interval; `low` and `high` are None where there is one seed only."""

    value: float
    low: float | None = None
    high: float | None = None

    def above(self, limit: float) -> Estimate:
        """Return by how much it lies above a limit."""
        low, high = (None if x is None else x - limit for x in (self.low, self.high))
        return Estimate(self.value - limit, low, high)


def iqm_weights(n: int) -> FloatArray:
    """The weight of each of `n` sorted values in their interquartile mean.

    A quarter of the mass is cut off each end, exactly: where n/4 is not a whole number, the
    value at the cut keeps the part of its mass that lies inside.

    Example:
        >>> iqm_weights(3) * 6
        array([1., 4., 1.])
    """
    left = np.arange(n, dtype=np.float64)
    inside = np.minimum(left + 1, 0.75 * n) - np.maximum(left, 0.25 * n)
    return np.clip(inside, 0.0, 1.0) / (0.5 * n)


def iqm(values: FloatArray) -> FloatArray:
    """The interquartile mean over the first axis.

    Example:
        >>> float(iqm(np.array([0.0, 1.0, 3.0, 1000.0])))
        2.0
    """
    return np.tensordot(iqm_weights(len(values)), np.sort(values, axis=0), axes=1)


def interval(values: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The bootstrap interval of the IQM over the first axis; None with fewer than two seeds.

    Args:
        values: one row a seed, of any number of columns (rounds), each treated on its own.
    """
    n = len(values)
    if n < 2:
        return None
    # The IQM looks at ranks only. A draw of ranks is therefore a draw of weights on the sorted
    # values, and one matrix product resamples every round without sorting anything again.
    weights = _resampled_weights(n, np.random.default_rng(_BOOTSTRAP_SEED))
    columns = np.sort(values, axis=0).reshape(n, -1)
    blocks = [
        _middle(weights @ columns[:, start : start + _COLUMNS_AT_ONCE])
        for start in range(0, columns.shape[1], _COLUMNS_AT_ONCE)
    ]
    if not blocks:
        empty = np.empty(values.shape[1:])
        return empty, empty
    low, high = np.concatenate(blocks, axis=1).reshape(2, *values.shape[1:])
    return low, high


def estimate(values: Sequence[float] | FloatArray) -> Estimate:
    """The IQM of one number a seed, with its interval."""
    array = np.asarray(values, dtype=np.float64)
    bounds = interval(array)
    if bounds is None:
        return Estimate(float(iqm(array)))
    return Estimate(float(iqm(array)), float(bounds[0]), float(bounds[1]))


def difference(first: FloatArray, second: FloatArray) -> Estimate:
    """IQM of the first minus IQM of the second, the seeds of each resampled independently.

    Seeds are not paired: runs of two algorithms may have different seeds, and where they share
    them, ignoring it errs on the side of a wider interval.
    """
    value = float(iqm(first) - iqm(second))
    if min(len(first), len(second)) < 2:
        return Estimate(value)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    draws = _resampled_weights(len(first), generator) @ np.sort(first)
    draws = draws - _resampled_weights(len(second), generator) @ np.sort(second)
    low, high = _middle(draws)
    return Estimate(value, float(low), float(high))


def probability_of_improvement(first: FloatArray, second: FloatArray) -> Estimate:
    """The probability that a run of the first ends above a run of the second; a tie counts one
    half."""
    wins = (first[:, None] > second[None, :]) + 0.5 * (first[:, None] == second[None, :])
    value = float(wins.mean())
    if min(len(first), len(second)) < 2:
        return Estimate(value)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    rows = _resampled_counts(len(first), generator) / len(first)
    columns = _resampled_counts(len(second), generator) / len(second)
    low, high = _middle(np.einsum("bi,ij,bj->b", rows, wins, columns))
    # The weights of a draw sum to one only up to rounding.
    return Estimate(value, float(np.clip(low, 0, 1)), float(np.clip(high, 0, 1)))


def resampled(statistic: Callable[[IntArray], float], strata: IntArray) -> Estimate:
    """A statistic of rows, with a bootstrap interval: rows are drawn again within their stratum.

    Draws of which it is NaN do not count.

    Args:
        statistic: given the numbers of the rows that it is computed from.
        strata: which stratum each row belongs to.
    """
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    # Rows in the order of their strata; each is replaced by one of those of its own.
    order = np.argsort(strata, kind="stable")
    _, begins, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    begin, size = np.repeat(begins, sizes), np.repeat(sizes, sizes)
    draws = [statistic(order[begin + generator.integers(0, size)]) for _ in range(RESAMPLES)]
    value = statistic(np.arange(len(strata)))
    counted = np.array(draws)[~np.isnan(draws)]
    if not counted.size:
        return Estimate(value)
    low, high = _middle(counted)
    return Estimate(value, float(low), float(high))


def final_window(evaluated: int) -> int:
    """The number of evaluated rounds that are "final": the last tenth, rounded down, and at least
    one.

    One evaluation is noisy; the mean over this window is what the report calls final.
    """
    return max(1, evaluated // FINAL_FRACTION)


def settling(last_round: int) -> int:
    """The number of rounds in which a run may settle: ten, or a third of a run shorter than thirty.

    Drops before that are those of a policy that has just begun to learn, where the return jumps by
    more than it ever will again.
    """
    return min(MOST_SETTLING, last_round // 3)


def largest_drop(rounds: IntArray, values: FloatArray) -> FloatArray:
    """The largest fall of the return below its best so far, for each run.

    Counted are the evaluated rounds after `settling`; the best so far is that of all evaluated
    rounds before, also of the first. 0 if it never fell below it.

    Args:
        rounds: the evaluated rounds, at least one.
        values: the return, one row a run.

    Example:
        >>> largest_drop(np.arange(1, 7), np.array([[-9.0, -50.0, -3.0, -5.0, -2.0, -3.0]]))
        array([2.])
    """
    best = np.maximum.accumulate(values, axis=1)[:, :-1]
    counted = rounds[1:] > settling(int(rounds[-1]))
    return np.max((best - values[:, 1:])[:, counted], axis=1, initial=0.0)


def first_reaching(values: FloatArray, target: float) -> int | None:
    """The position of the first value that is at least the target; None if there is none."""
    reached = np.flatnonzero(values >= target)
    return int(reached[0]) if reached.size else None


def default_target(curves: Sequence[FloatArray], finals: Sequence[float]) -> float:
    """The return that every algorithm is asked to reach, when the user names none.

    It is the final return of the second-best algorithm (of the only one, if there is one), so
    that the table tells how much sooner the best gets where its strongest rival ends. It is no
    lower than half-way from the first to the highest value of the best algorithm's curve: else a
    rival that learned nothing would set a target that is reached at once.

    Args:
        curves: the IQM of the return over the evaluated rounds, for each algorithm.
        finals: the final return of each algorithm.
    """
    ranked = sorted(range(len(finals)), key=lambda i: -finals[i])
    best = curves[ranked[0]]
    half_way = 0.5 * (float(best[0]) + float(best.max()))
    rival = finals[ranked[min(1, len(ranked) - 1)]]
    # No curve need pass the IQM of per-seed means, but the best curve passes its own maximum.
    return min(max(rival, half_way), float(best.max()))


def _resampled_counts(n: int, generator: np.random.Generator) -> FloatArray:
    """The count of each of n seeds in each bootstrap draw; shape (RESAMPLES, n)."""
    return generator.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)


def _resampled_weights(n: int, generator: np.random.Generator) -> FloatArray:
    """The weight of each sorted value in the IQM of each bootstrap draw; (RESAMPLES, n)."""
    upto = np.cumsum(_resampled_counts(n, generator), axis=1)
    # Sorted, the draw holds value k at the places from upto[k - 1] to upto[k].
    mass = np.concatenate([[0.0], np.cumsum(iqm_weights(n))])
    cumulative = mass[upto.astype(np.int64)]
    return np.diff(cumulative, axis=1, prepend=0.0)


def _middle(draws: FloatArray) -> FloatArray:
    """The two ends of the middle `CONFIDENCE` of the draws (first axis)."""
    tail = 0.5 * (1 - CONFIDENCE)
    return np.quantile(draws, [tail, 1 - tail], axis=0)
