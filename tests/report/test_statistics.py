"""The statistics against numbers by hand, against SciPy, and against what must always hold."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedkl.report import statistics
from fedkl.report.statistics import (
    default_target,
    difference,
    estimate,
    final_window,
    first_reaching,
    interval,
    iqm,
    iqm_weights,
    largest_drop,
    probability_of_improvement,
    settling,
)

seeds = st.integers(1, 12).flatmap(
    lambda n: arrays(np.float64, n, elements=st.floats(-1e3, 1e3, allow_subnormal=False))
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([9.0, 0.0, 3.0], (0 + 4 * 3 + 9) / 6),
        ([100.0, 2.0, 4.0, -50.0], 3.0),
        # n = 5: a quarter is 1.25 values, so the second and fourth keep three quarters.
        ([1.0, 2.0, 3.0, 4.0, 50.0], (0.75 * 2 + 3 + 0.75 * 4) / 2.5),
    ],
)
def test_iqm_by_hand(values: list[float], expected: float) -> None:
    assert float(iqm(np.array(values))) == pytest.approx(expected)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_iqm_is_scipys_trimmed_mean_where_that_is_exact(quarter: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(4 * quarter, 3))
    np.testing.assert_allclose(iqm(values), scipy.stats.trim_mean(values, 0.25, axis=0))


@given(seeds)
def test_iqm_lies_between_the_extremes_and_ignores_order(values: np.ndarray) -> None:
    middle = float(iqm(values))
    assert values.min() - 1e-9 <= middle <= values.max() + 1e-9
    assert float(iqm(values[::-1])) == pytest.approx(middle)
    assert float(iqm(2 * values + 1)) == pytest.approx(2 * middle + 1, abs=1e-9)


@given(st.integers(4, 12), st.floats(1e3, 1e9))
def test_iqm_ignores_one_broken_seed(n: int, broken: float) -> None:
    values = np.zeros(n)
    values[0] = broken
    assert float(iqm(values)) == 0.0


@given(st.integers(1, 40))
def test_weights_are_a_symmetric_average(n: int) -> None:
    weights = iqm_weights(n)
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights, weights[::-1], atol=1e-12)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_interval_agrees_with_scipys_bootstrap(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    theirs = scipy.stats.bootstrap(
        (values,),
        lambda sample, axis: iqm(np.moveaxis(sample, axis, 0)),
        method="percentile",
        n_resamples=20_000,
        random_state=np.random.default_rng(1),
    ).confidence_interval
    bounds = interval(values)
    assert bounds is not None
    # Both are Monte Carlo estimates, of a distribution that has few values when n is small.
    np.testing.assert_allclose([float(b) for b in bounds], [theirs.low, theirs.high], atol=0.06)


def test_interval_treats_every_round_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_COLUMNS_AT_ONCE", 4)  # so that ten columns need three blocks
    values = np.random.default_rng(0).normal(size=(6, 10))
    bounds = interval(values)
    assert bounds is not None
    for column in range(10):
        alone = estimate(values[:, column])
        assert (alone.low, alone.high) == pytest.approx(
            (float(bounds[0][column]), float(bounds[1][column]))
        )


@settings(max_examples=30)
@given(seeds)
def test_interval_surrounds_the_value_within_the_seeds(values: np.ndarray) -> None:
    found = estimate(values)
    if len(values) == 1:
        assert found.low is None
        assert found.high is None
        assert interval(values) is None
    else:
        assert found.low is not None
        assert found.high is not None
        assert values.min() - 1e-9 <= found.low <= found.value + 1e-9
        assert found.value - 1e-9 <= found.high <= values.max() + 1e-9


def test_statistics_are_reproducible() -> None:
    values = np.random.default_rng(3).normal(size=7)
    assert estimate(values) == estimate(values)
    assert difference(values, values[:4]) == difference(values, values[:4])


def test_difference_of_two_seeds_by_hand() -> None:
    # The IQM of two is their mean, so a draw of the first gives 10, 11 or 12.
    found = difference(np.array([10.0, 12.0]), np.array([0.0, 0.0]))
    assert (found.value, found.low, found.high) == pytest.approx((11.0, 10.0, 12.0))
    assert difference(np.array([1.0]), np.array([0.0, 2.0])).low is None


def test_probability_of_improvement_by_hand() -> None:
    # Pairs: 1>0, 1<2, 3>0, 3>2: three of four.
    found = probability_of_improvement(np.array([1.0, 3.0]), np.array([0.0, 2.0]))
    assert found.value == 0.75
    assert (found.low, found.high) == (0.0, 1.0)
    assert probability_of_improvement(np.ones(3), np.ones(4)).value == 0.5
    certain = probability_of_improvement(np.array([5.0, 6.0]), np.array([1.0, 2.0]))
    assert (certain.value, certain.low, certain.high) == (1.0, 1.0, 1.0)


@settings(max_examples=30)
@given(seeds, seeds)
def test_probability_of_improvement_is_the_mann_whitney_statistic(
    first: np.ndarray, second: np.ndarray
) -> None:
    there = probability_of_improvement(first, second).value
    back = probability_of_improvement(second, first).value
    assert there + back == pytest.approx(1)
    u = scipy.stats.mannwhitneyu(first, second, method="asymptotic", use_continuity=False).statistic
    assert there == pytest.approx(u / (len(first) * len(second)))


@pytest.mark.parametrize(("evaluated", "window"), [(1, 1), (9, 1), (10, 1), (20, 2), (207, 20)])
def test_final_window(evaluated: int, window: int) -> None:
    assert final_window(evaluated) == window


@pytest.mark.parametrize(("last", "rounds"), [(1, 0), (20, 6), (29, 9), (30, 10), (400, 10)])
def test_ten_rounds_to_settle_or_a_third_of_a_short_run(last: int, rounds: int) -> None:
    assert settling(last) == rounds


def test_largest_drop_by_hand() -> None:
    rounds = np.arange(1, 31)
    rising = np.arange(30.0)
    early, late, slow = rising.copy(), rising.copy(), rising.copy()
    early[9] = -100.0  # round 10 still settles
    late[10] = 2.0  # round 11 counts: 9 was the best so far
    slow[20:] = np.linspace(19, 10, 10)  # no step falls by more than 1, and all together by 9
    found = largest_drop(rounds, np.stack([rising, early, late, slow]))
    assert found.tolist() == [0.0, 0.0, 7.0, 9.0]


def test_a_drop_is_below_the_best_of_all_evaluated_rounds_before() -> None:
    # Evaluated every ten rounds: the best is in round 10, which itself is not counted.
    rounds = np.array([10, 20, 30])
    assert largest_drop(rounds, np.array([[5.0, 1.0, 3.0]])).tolist() == [4.0]
    assert largest_drop(rounds[:1], np.array([[5.0]])).tolist() == [0.0]


def test_first_reaching() -> None:
    values = np.array([0.0, 2.0, 1.0, 3.0])
    assert first_reaching(values, 2.0) == 1
    assert first_reaching(values, 2.5) == 3
    assert first_reaching(values, 4.0) is None


@pytest.mark.parametrize(
    ("curves", "finals", "expected"),
    [
        # The runner-up's final return, however far below the first rounds were.
        ([[-140.0, -9.0, -8.0], [-140.0, -11.0, -10.0]], [-8.0, -10.0], -10.0),
        # A rival that collapsed sets no target: half-way on the best curve.
        ([[0.0, 8.0, 10.0], [0.0, -50.0, -500.0]], [10.0, -500.0], 5.0),
        # One algorithm: its own end.
        ([[0.0, 9.0, 11.0, 10.0]], [10.0], 10.0),
        # Of three, the second-best counts, wherever it stands in the list.
        ([[0.0, 7.0], [0.0, 1.0], [0.0, 9.0]], [7.0, 1.0, 9.0], 7.0),
    ],
)
def test_default_target(curves: list[list[float]], finals: list[float], expected: float) -> None:
    assert default_target([np.array(c) for c in curves], finals) == expected
