"""Distances by hand, against SciPy, and by the duality that the bounds rest on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fedkl.tabular.distances import frobenius, inner, kl_divergence, span, total_variation

PAIR = arrays(np.int64, (2, 4), elements=st.integers(0, 5)).filter(lambda x: x.any(axis=1).all())


def test_total_variation_by_hand():
    p, q = np.array([[0.5, 0.5, 0.0], [1.0, 0, 0]]), np.array([[0.2, 0.5, 0.3], [0, 0, 1.0]])
    np.testing.assert_allclose(total_variation(p, q), [0.3, 1])


@given(PAIR)
@settings(max_examples=50, deadline=None)
def test_total_variation_is_the_largest_difference_of_an_events_probability(weights):
    p, q = weights / weights.sum(axis=1, keepdims=True)
    events = np.array([[bool(i >> bit & 1) for bit in range(4)] for i in range(16)])
    largest = (events @ (p - q)).max()
    assert total_variation(p, q) == pytest.approx(largest, abs=1e-15)


@given(PAIR)
@settings(max_examples=50, deadline=None)
def test_kl_agrees_with_scipy_and_is_at_least_twice_tv_squared(weights):
    """Pinsker's inequality."""
    p, q = weights / weights.sum(axis=1, keepdims=True)
    assert kl_divergence(p, q) == pytest.approx(stats.entropy(p, q))
    assert kl_divergence(p, q) >= 2 * total_variation(p, q) ** 2 - 1e-14


def test_kl_is_infinite_where_the_second_misses_something_but_not_the_other_way_round():
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    assert kl_divergence(p, q) == np.inf
    assert kl_divergence(q, p) == pytest.approx(np.log(2))


@given(PAIR, arrays(np.int64, 4, elements=st.integers(-5, 5)))
@settings(max_examples=50, deadline=None)
def test_a_change_gains_at_most_the_span_times_its_total_variation(weights, x):
    p, q = weights / weights.sum(axis=1, keepdims=True)
    assert abs(x @ (p - q)) <= span(x) * total_variation(p, q) + 1e-14


def test_the_span_is_attained_by_moving_from_the_smallest_to_the_largest():
    x, change = np.array([3.0, -1.0, 0.0]), np.array([0.25, -0.25, 0.0])
    assert x @ change == span(x) * 0.25


@given(arrays(np.int64, 4, elements=st.integers(-5, 5)))
@settings(max_examples=50, deadline=None)
def test_the_span_is_at_most_root_two_times_the_norm(x):
    assert span(x) <= np.sqrt(2) * np.linalg.norm(x) + 1e-14


def test_norm_and_inner_product_are_over_the_last_two_axes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 5, 3, 4))
    np.testing.assert_allclose(frobenius(x), [np.linalg.norm(one) for one in x])
    np.testing.assert_allclose(inner(x, y), [np.trace(a @ b.T) for a, b in zip(x, y, strict=True)])
