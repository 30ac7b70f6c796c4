"""Collapses, rounds to a target, and verdicts: numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkl.experiments.reproduce import statistics
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, IN_PART, OPEN
from fedkl.report.statistics import Estimate


def test_a_run_that_only_rises_never_collapses():
    assert statistics.collapses(np.linspace(-40, -5, 50)) == (0, 0.0, 0.0)


def test_a_run_that_never_gains_has_nothing_to_lose():
    assert statistics.collapses(np.linspace(-5, -40, 50)) == (0, 0.0, 0.0)


def test_a_collapse_lasts_until_the_loss_is_below_a_quarter_and_is_counted_once():
    # Gained 30 up to round 20; three rounds 10 below that, then 7, which is less than a quarter.
    values = np.concatenate([np.linspace(-40, -10, 20), [-20, -20, -20, -17], [-10] * 16])
    found = statistics.collapses(values)
    assert (found.number, found.share) == (1, 3 / 30)
    assert found.depth == pytest.approx(1 / 3)


def test_falls_in_the_first_ten_rounds_do_not_count():
    assert statistics.collapses(np.array([-40.0, -10, -40, *[-10.0] * 37])).number == 0


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=12))
def test_without_censoring_kaplan_meier_is_the_share_of_runs_left(pairs):
    times = [t for t, _ in pairs]
    curve = statistics.kaplan_meier(times, [True] * len(times))
    for time, left in curve:
        assert left == pytest.approx(np.mean(np.array(times) > time), abs=1e-12)


def test_kaplan_meier_by_hand():
    """Five runs: two reach it (rounds 6 and 10), one ends at 7, two at 15 without it."""
    curve = statistics.kaplan_meier([6, 7, 10, 15, 15], [True, False, True, False, False])
    assert curve == [(6.0, pytest.approx(4 / 5)), (10.0, pytest.approx(4 / 5 * 2 / 3))]


def test_the_median_time_is_unknown_while_more_than_half_of_the_runs_have_not_arrived():
    assert statistics.median_time([5, 9, 20], [True, True, False]) == 9
    assert statistics.median_time([5, 20, 20], [True, False, False]) is None


@pytest.mark.parametrize(
    ("estimate", "said"),
    [
        (Estimate(1.0, 0.5, 2.0), HOLDS),
        (Estimate(1.0, -0.5, 2.0), OPEN),
        (Estimate(-1.0, -2.0, -0.5), FAILS),
        (Estimate(0.0, 0.0, 0.0), FAILS),
        (Estimate(5.0), OPEN),
    ],
)
def test_a_verdict_follows_from_where_the_interval_lies(estimate, said):
    assert statistics.verdict(estimate) == said


def test_a_claim_with_parts_holds_in_part_if_some_do():
    assert statistics.together([HOLDS, FAILS]) == IN_PART
    assert statistics.together([FAILS, FAILS]) == FAILS
    assert statistics.together([OPEN, OPEN]) == OPEN


def test_ranks_within_stages_undo_a_trend_over_stages():
    stage = statistics.stages(["a"] * 40, range(2, 42), first=2)
    assert np.unique(stage, return_counts=True)[1].tolist() == [10] * 4
    trend, wave = -100.0 * stage, np.tile(np.arange(10.0), 4)
    x, y = (statistics.within_stages(v, stage) for v in (trend + wave, -trend + wave))
    assert statistics.correlation(x, y) == pytest.approx(1.0)


def test_the_correlation_of_what_does_not_vary_is_unknown():
    assert np.isnan(statistics.correlation(np.zeros(3), np.arange(3.0)))
