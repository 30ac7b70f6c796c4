"""Reducers against numbers computed by hand, SciPy, and what they promise of bad clients."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.stats import trim_mean

from fedkl.core.errors import UserError
from fedkl.core.settings import build
from fedkl.server.aggregation import (
    REDUCERS,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
)

ALL = [
    Mean(),
    Median(),
    TrimmedMean(trim=0.3),
    GeometricMedian(),
    Krum(byzantine=2),
    MultiKrum(byzantine=2),
]
ROBUST = ALL[1:]


def reduce(reducer, points, weights=None):
    points = np.asarray(points, np.float64)
    points = points[:, None] if points.ndim == 1 else points
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, np.float64)
    result = reducer(points, weights)
    assert result.dtype == np.float64
    assert result.shape == points.shape[1:]
    return result.tolist()


def several(k, bound=10.0):
    """k points in three dimensions that no rounding can make equal."""
    return arrays(np.float64, (k, 3), elements=st.integers(0, 1000), unique=True).map(
        lambda x: bound * (x / 500 - 1)
    )


def krum_scores(points, neighbours):
    """As in the paper, by the book."""
    scores = []
    for i, x in enumerate(points):
        distances = sorted(float(np.sum((x - y) ** 2)) for j, y in enumerate(points) if j != i)
        scores.append(sum(distances[:neighbours]))
    return np.array(scores)


def assume_no_ties(reducer, points):
    """Krum gives ties to the lowest client, so there its result may depend on order or rounding."""
    if isinstance(reducer, Krum):
        assume(np.diff(np.sort(krum_scores(points, 3))).min() > 1e-6)


def ids(reducer):
    return reducer.name


def test_ours_are_registered_under_their_names():
    assert {type(r) for r in ALL} <= {REDUCERS[name] for name in REDUCERS}
    assert all(REDUCERS[r.name] is type(r) and r.summary for r in ALL)


def test_only_the_mean_merges_moments():
    assert [r.name for r in ALL if r.merges_moments] == ["mean"]


@pytest.mark.parametrize("reducer", ALL, ids=ids)
def test_one_point_is_returned_as_it_is(reducer):
    assert reduce(reducer, [[0.1, -1e6, 3.3]], [17.0]) == [0.1, -1e6, 3.3]


@pytest.mark.parametrize("reducer", ALL, ids=ids)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_fewer_points_than_clients_per_round_still_give_a_point_among_them(reducer, k):
    points = np.random.default_rng(k).normal(size=(k, 4))
    result = reduce(reducer, points)
    assert np.all((points.min(0) <= result) & (result <= points.max(0)))


@pytest.mark.parametrize("reducer", ALL, ids=ids)
@given(points=several(7), shift=arrays(np.float64, 3, elements=st.floats(-100, 100)))
@settings(max_examples=25, deadline=None)
def test_moving_all_points_moves_the_result(reducer, points, shift):
    assume_no_ties(reducer, points)
    moved = np.asarray(reduce(reducer, points)) + shift
    assert reduce(reducer, points + shift) == pytest.approx(moved, abs=1e-6)


@pytest.mark.parametrize("reducer", ALL, ids=ids)
@given(points=several(7), order=st.permutations(range(7)))
@settings(max_examples=25, deadline=None)
def test_who_has_which_number_does_not_matter(reducer, points, order):
    assume_no_ties(reducer, points)
    weights = np.arange(1.0, 8.0)
    shuffled = reduce(reducer, points[order], weights[order])
    assert shuffled == pytest.approx(reduce(reducer, points, weights), abs=1e-6)


@pytest.mark.parametrize("reducer", ROBUST, ids=ids)
@given(points=several(7))
@settings(max_examples=10, deadline=None)
def test_the_robust_ones_do_not_believe_weights(reducer, points):
    assert reduce(reducer, points, [1e9, 1, 1, 1, 1, 1, 1]) == reduce(reducer, points)


# --- what two liars of seven can do ---


@given(honest=several(5), lies=arrays(np.float64, (2, 3), elements=st.floats(-1e9, 1e9)))
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("reducer", [Median(), TrimmedMean(trim=0.3)], ids=ids)
def test_coordinates_stay_between_those_of_honest_clients(reducer, honest, lies):
    result = reduce(reducer, np.concatenate([honest, lies]))
    assert np.all((honest.min(0) - 1e-9 <= result) & (result <= honest.max(0) + 1e-9))


@given(honest=several(5), lies=arrays(np.float64, (2, 3), elements=st.floats(-1e9, 1e9)))
@settings(max_examples=50, deadline=None)
def test_the_geometric_median_stays_near_the_honest_mean(honest, lies):
    """Within 2 (1 - a) / (1 - 2 a) honest radii for a share a = 2/7 of liars: 10/3
    (Lopuhaa and Rousseeuw 1991; Minsker 2015)."""
    result = np.asarray(reduce(GeometricMedian(), np.concatenate([honest, lies])))
    centre = honest.mean(0)
    radius = np.linalg.norm(honest - centre, axis=1).max()
    assert np.linalg.norm(result - centre) <= 10 / 3 * radius * (1 + 1e-4)


@given(honest=several(5), far=st.floats(1e4, 1e8), signs=st.tuples(*[st.sampled_from([-1, 1])] * 2))
@settings(max_examples=50, deadline=None)
def test_krum_takes_an_honest_point_and_multi_krum_the_honest_mean(honest, far, signs):
    lies = np.full((2, 3), far) * np.array(signs)[:, None]
    points = np.concatenate([lies, honest])
    assert reduce(Krum(byzantine=2), points) in honest.tolist()
    assert reduce(MultiKrum(byzantine=2), points) == pytest.approx(honest.mean(0), abs=1e-9)


def test_the_mean_goes_wherever_one_liar_wants():
    assert reduce(Mean(), [0, 0, 0, 0, 0, 0, 7e6]) == [1e6]


# --- mean ---


def test_the_mean_is_weighted():
    """(1 (1, 2) + 3 (5, 6)) / 4 = (4, 5)."""
    assert reduce(Mean(), [[1, 2], [5, 6]], [1, 3]) == [4.0, 5.0]


def test_the_mean_has_the_bits_of_a_sum_in_the_order_of_clients():
    """Runs of earlier versions go on with the same numbers: 1/7 0.1 + 2/7 0.2 + 4/7 0.3."""
    (result,) = reduce(Mean(), [0.1, 0.2, 0.3], [1, 2, 4])
    assert result.hex() == "0x1.f15f15f15f15ep-3"


@given(points=several(5), weights=st.lists(st.integers(1, 10_000), min_size=5, max_size=5))
@settings(max_examples=25, deadline=None)
def test_the_mean_adds_shares_one_after_the_other(points, weights):
    total, expected = float(sum(weights)), np.zeros(3)
    for weight, point in zip(weights, points, strict=True):
        expected = expected + weight / total * point
    assert reduce(Mean(), points, weights) == expected.tolist()


# --- median and trimmed mean ---


def test_the_median_of_each_coordinate():
    assert reduce(Median(), [[1, 9], [2, 7], [100, 8]]) == [2.0, 8.0]
    assert reduce(Median(), [1, 2, 4, 100]) == [3.0]


def test_the_trimmed_mean_leaves_out_the_extremes_of_each_coordinate():
    """Of five, floor(0.2 * 5) = 1 at each end: (2 + 3 + 7) / 3 and (0 + 1 + 2) / 3."""
    points = [[3, -50], [1, 0], [2, 1], [99, 2], [7, 50]]
    assert reduce(TrimmedMean(trim=0.2), points) == [4.0, 1.0]


def test_the_trimmed_mean_of_a_short_round_cuts_off_fewer():
    """Of four, floor(0.2 * 4) = 0."""
    assert reduce(TrimmedMean(trim=0.2), [1, 2, 3, 94]) == [25.0]


@given(points=several(11), trim=st.floats(0, 0.499))
@settings(max_examples=50, deadline=None)
def test_the_trimmed_mean_agrees_with_scipy(points, trim):
    assert reduce(TrimmedMean(trim=trim), points) == pytest.approx(trim_mean(points, trim, axis=0))


def test_half_or_more_cannot_be_trimmed():
    with pytest.raises(UserError, match=r"^aggregation\.trim must be at most 0\.499, not 0\.5$"):
        build(TrimmedMean, {"trim": 0.5}, "aggregation")
    with pytest.raises(UserError, match=r"^aggregation\.trim must be at least 0, not -0\.1$"):
        build(TrimmedMean, {"trim": -0.1}, "aggregation")


def test_a_trim_that_cuts_off_nobody_is_refused():
    with pytest.raises(
        UserError, match=r"^aggregation\.trim must be 0, or at least 0\.25, not 0\.2"
    ):
        TrimmedMean(trim=0.2).check(4)
    with pytest.raises(UserError, match=r"^aggregation\.trim must be 0, not 0\.4"):
        TrimmedMean(trim=0.4).check(2)
    TrimmedMean(trim=0.2).check(5)
    TrimmedMean(trim=0.0).check(1)


# --- geometric median ---


def test_the_geometric_median_of_four_is_where_the_diagonals_cross():
    """(0, 0)-(5, 5) and (4, 0)-(0, 1) cross in (0.8, 0.8)."""
    result = reduce(GeometricMedian(tolerance=1e-9), [[0, 0], [4, 0], [5, 5], [0, 1]])
    assert result == pytest.approx([0.8, 0.8], abs=1e-6)


def test_a_triangle_s_wide_corner_is_its_geometric_median():
    """At more than 120 degrees."""
    assert reduce(GeometricMedian(), [[0, 0], [-10, 1], [10, 1]]) == pytest.approx([0, 0], abs=1e-4)


def test_on_a_line_it_is_the_median():
    assert reduce(GeometricMedian(), [0, 1, 2, 50, 1000]) == pytest.approx([2], abs=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3, 10])
def test_where_all_agree_it_is_exactly_their_point(k):
    point = [0.1, 1 / 3, -7e5]
    assert reduce(GeometricMedian(), [point] * k) == point


def test_where_most_agree_it_is_exactly_their_point():
    point = [0.1, 1 / 3, -7e5]
    assert (
        reduce(GeometricMedian(), [[9.0, 8.0, 7.0], [1e9, 0.0, 0.0], point, point, point]) == point
    )


@given(points=several(6))
@settings(max_examples=25, deadline=None)
def test_the_geometric_median_agrees_with_scipy(points):
    def total(x):
        return float(np.linalg.norm(points - x, axis=1).sum())

    best = minimize(total, points.mean(0), method="Nelder-Mead", options={"xatol": 1e-7})
    result = GeometricMedian(iterations=2000, tolerance=1e-9)(points, np.ones(6))
    assert total(result) <= best.fun * (1 + 1e-5)


@given(points=several(5), scale=st.sampled_from([1e-8, 1e8]))
@settings(max_examples=10, deadline=None)
def test_the_geometric_median_has_no_unit(points, scale):
    scaled = reduce(GeometricMedian(), points * scale)
    expected = np.asarray(reduce(GeometricMedian(), points)) * scale
    assert scaled == pytest.approx(expected, abs=1e-6 * scale)


def test_more_iterations_come_nearer():
    points = [[0, 0], [4, 0], [5, 5], [0, 1]]
    gaps = [
        np.linalg.norm(np.asarray(reduce(GeometricMedian(iterations=i), points)) - 0.8)
        for i in (1, 5, 50)
    ]
    assert gaps[0] > gaps[1] > gaps[2]


# --- Krum ---


def test_krum_by_hand():
    """Two neighbours each; scores 1 + 9, 1 + 4, 4 + 9, 16 + 36, 93^2 + 97^2."""
    points = [0, 1, 3, 7, 100]
    assert Krum(byzantine=1).ranking(np.array(points, float)[:, None]).tolist() == [1, 0, 2, 3, 4]
    assert reduce(Krum(byzantine=1), points) == [1.0]


def test_multi_krum_by_hand():
    """The best four of the points above, or the best two."""
    assert reduce(MultiKrum(byzantine=1), [0, 1, 3, 7, 100]) == [2.75]
    assert reduce(MultiKrum(byzantine=1, chosen=2), [0, 1, 3, 7, 100]) == [0.5]


def test_multi_krum_with_one_chosen_is_krum():
    points = np.random.default_rng(3).normal(size=(9, 5))
    assert reduce(MultiKrum(byzantine=3, chosen=1), points) == reduce(Krum(byzantine=3), points)


def test_equal_scores_go_to_the_lowest_client():
    """Two neighbours each; scores 101, 82, 82, 101."""
    assert reduce(Krum(byzantine=0), [0, 1, 10, 11]) == [1.0]
    assert reduce(Krum(byzantine=0), [11, 10, 1, 0]) == [10.0]
    assert reduce(MultiKrum(byzantine=0, chosen=3), [0, 1, 10, 11]) == [pytest.approx(11 / 3)]


def test_a_short_round_looks_at_one_neighbour():
    """Three of seven arrived: 3 - 2 - 2 is below 1; the nearest pair is 5 and 6."""
    assert reduce(Krum(byzantine=2), [0, 5, 6]) == [5.0]
    assert reduce(MultiKrum(byzantine=2), [0, 5, 6]) == [5.0]


def test_clients_that_were_refused_need_not_be_borne_any_more():
    """Of 0, 1, 2 and 9, one liar to bear leaves 9 out; once it is found, all are averaged."""
    assert reduce(MultiKrum(byzantine=1), [0, 1, 2, 9]) == [1.0]
    assert reduce(MultiKrum(byzantine=1).after_refusing(1), [0, 1, 2, 9]) == [3.0]
    assert MultiKrum(byzantine=3, chosen=2).after_refusing(1) == MultiKrum(byzantine=2, chosen=2)
    assert Krum(byzantine=1).after_refusing(5) == Krum(byzantine=0)


@pytest.mark.parametrize("reducer", [Mean(), Median(), TrimmedMean(), GeometricMedian()], ids=ids)
def test_others_bear_no_number_of_clients(reducer):
    assert reducer.after_refusing(1) is reducer


@given(points=several(7))
@settings(max_examples=25, deadline=None)
def test_krum_takes_the_point_with_the_smallest_score(points):
    scores = krum_scores(points, 7 - 1 - 2)
    chosen = points.tolist().index(reduce(Krum(byzantine=1), points))
    assert scores[chosen] == pytest.approx(scores.min())


@pytest.mark.parametrize("reducer", [Krum(byzantine=2), MultiKrum(byzantine=2)], ids=ids)
def test_krum_needs_enough_clients(reducer):
    reducer.check(7)
    with pytest.raises(
        UserError, match=rf"^aggregation\.reduce = {reducer.name} .* at least 7, not 6$"
    ):
        reducer.check(6)


def test_multi_krum_cannot_choose_more_than_the_good_ones():
    MultiKrum(byzantine=2, chosen=5).check(7)
    with pytest.raises(UserError, match=r"^aggregation\.chosen must be at most 5 .*, not 6$"):
        MultiKrum(byzantine=2, chosen=6).check(7)
