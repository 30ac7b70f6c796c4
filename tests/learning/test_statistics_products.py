"""Products of features: with them merged moments hold the covariance of all samples together."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedkl.learning.statistics import Moments, correlation, empty, merge, of_batch, pairs

F = 4
"""Features, and so 6 pairs."""
samples = hnp.arrays(
    np.float64, st.tuples(st.integers(0, 12), st.just(F)), elements=st.floats(-100, 100)
)


def exact(x):
    """Moments in NumPy's float64, products pair by pair."""
    mean = x.mean(axis=0) if len(x) else np.zeros(F)
    d = x - mean
    products = [(d[:, i] * d[:, j]).sum() for i in range(F) for j in range(i + 1, F)]
    return Moments(np.float64(len(x)), mean, (d**2).sum(axis=0), np.array(products))


def covariance(moments):
    """The matrix that moments stand for."""
    i, j = pairs(len(moments.mean))
    matrix = np.diag(np.asarray(moments.squares))
    matrix[i, j] = matrix[j, i] = moments.products
    return matrix / moments.count


def test_pairs_go_row_by_row():
    i, j = pairs(3)
    assert [*zip(i.tolist(), j.tolist(), strict=True)] == [(0, 1), (0, 2), (1, 2)]
    assert pairs(1)[0].shape == (0,)


def test_by_hand():
    """Two features, (0, 0), (2, 4) and (4, 2): means 2 and 2, squares 8 and 8, and the product of
    deviations 4 + 0 + 0 = 4."""
    x = jnp.array([[0.0, 0.0], [2.0, 4.0], [4.0, 2.0]])
    moments = of_batch(x, jnp.ones(3, bool), products=True)
    assert moments.mean.tolist() == [2, 2]
    assert moments.squares.tolist() == [8, 8]
    assert moments.products.tolist() == [4]
    # 4 / 8 of what full agreement would be.
    np.testing.assert_allclose(correlation(moments), [[1, 0.5], [0.5, 1]], rtol=1e-6)


@given(st.lists(samples, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_merged_in_any_split_and_order_they_are_numpys_covariance(parts, random):
    everything = np.concatenate(parts)
    random.shuffle(parts)
    merged = reduce(merge, map(exact, parts))
    assert merged.count == len(everything)
    if len(everything):
        expected = np.cov(everything, rowvar=False, bias=True)
        np.testing.assert_allclose(covariance(merged), expected, rtol=1e-9, atol=1e-9)
    else:
        assert not merged.products.any()


@given(samples, samples, samples)
def test_merging_is_commutative_and_associative(a, b, c):
    a, b, c = exact(a), exact(b), exact(c)
    one, other = merge(merge(a, b), c), merge(c, merge(b, a))
    np.testing.assert_allclose(one.products, other.products, rtol=1e-9, atol=1e-6)


@given(samples)
def test_nothing_merged_changes_nothing(a):
    nothing = jax.tree.map(lambda x: np.zeros(np.shape(x)), exact(a))
    for merged in (merge(exact(a), nothing), merge(nothing, exact(a))):
        np.testing.assert_allclose(merged.products, exact(a).products, rtol=1e-12, atol=1e-12)


def test_the_server_keeps_them_in_float64():
    merged = merge(exact(np.ones((3, F))), exact(np.zeros((2, F))))
    assert merged.products.dtype == np.float64


def test_products_are_kept_by_both_sides_or_by_none():
    plain = of_batch(jnp.ones((3, F)), jnp.ones(3, bool))
    with_them = of_batch(jnp.ones((3, F)), jnp.ones(3, bool), products=True)
    assert plain.products is None
    assert merge(plain, plain).products is None
    with pytest.raises(AssertionError):
        merge(plain, with_them)
    assert merge(with_them, with_them).products.shape == (6,)
    assert empty(F).products is None
    assert empty(F, products=True).products.tolist() == [0] * 6
    assert empty(1, products=True).products.shape == (0,)


def test_a_batch_agrees_with_numpy_over_the_true_entries():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(F, F))
    x = (rng.normal(3, 2, (6, 5, F)) @ mixing).astype(np.float32)
    mask = rng.random((6, 5)) < 0.5
    padded = jnp.where(mask[..., None], x, 1e6)
    moments = of_batch(padded, jnp.asarray(mask), products=True)
    expected = np.cov(x[mask], rowvar=False, bias=True)
    np.testing.assert_allclose(covariance(moments), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        correlation(moments), np.corrcoef(x[mask], rowvar=False), rtol=1e-4, atol=1e-5
    )


@given(hnp.arrays(np.float64, st.just((9, F)), elements=st.integers(-8, 8).map(float)))
@settings(deadline=None, max_examples=30)
def test_correlations_are_numpys_where_features_vary_and_0_where_they_do_not(x):
    found = np.asarray(correlation(exact(x)))
    varies = x.std(axis=0) > 0
    assert not found[~varies].any()
    assert not found[:, ~varies].any()
    if varies.any():
        expected = np.atleast_2d(np.corrcoef(x[:, varies], rowvar=False))
        np.testing.assert_allclose(found[np.ix_(varies, varies)], expected, atol=1e-5)
    assert np.linalg.eigvalsh(found).min() > -1e-5


@pytest.mark.parametrize("count", [0, 1])
def test_of_nothing_or_one_sample_nothing_varies(count):
    moments = of_batch(jnp.full((2, F), 7.0), jnp.arange(2) < count, products=True)
    np.testing.assert_array_equal(correlation(moments), np.zeros((F, F)))


def test_without_products_features_are_taken_for_independent():
    moments = Moments(jnp.array(4.0), jnp.array([1.0, 2.0, 3.0]), jnp.array([16.0, 4.0, 0.0]))
    np.testing.assert_allclose(correlation(moments), np.diag([1, 1, 0]), rtol=1e-6)


def test_a_mean_far_from_zero_costs_no_precision():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(1000, 2)) @ np.array([[0.1, 0.05], [0.0, 0.1]])
    x = (1000.0 + noise).astype(np.float32)
    halves = [
        of_batch(jnp.asarray(h), jnp.ones(500, bool), products=True) for h in (x[:500], x[500:])
    ]
    expected = np.corrcoef(x.astype(np.float64), rowvar=False)
    np.testing.assert_allclose(correlation(merge(*halves)), expected, atol=0.01)
