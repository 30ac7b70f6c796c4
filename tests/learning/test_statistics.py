"""Merged moments are those of all samples together, in any order."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedkl.learning.statistics import (
    Moments,
    deviation,
    empty,
    merge,
    of_batch,
    rescale,
    standardise,
)

samples = hnp.arrays(
    np.float64, st.tuples(st.integers(0, 20), st.just(2)), elements=st.floats(-100, 100)
)


def exact(x):
    """Moments in NumPy's float64."""
    mean = x.mean(axis=0) if len(x) else np.zeros(2)
    return Moments(np.float64(len(x)), mean, ((x - mean) ** 2).sum(axis=0))


def same(a, b):
    np.testing.assert_allclose(a.count, b.count)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-9)
    np.testing.assert_allclose(a.squares, b.squares, rtol=1e-9, atol=1e-7)


@given(samples, samples)
def test_merging_gives_the_moments_of_the_concatenation(a, b):
    same(merge(exact(a), exact(b)), exact(np.concatenate([a, b])))


@given(samples, samples)
def test_merging_is_commutative(a, b):
    same(merge(exact(a), exact(b)), merge(exact(b), exact(a)))


@given(samples, samples, samples)
def test_merging_is_associative(a, b, c):
    a, b, c = exact(a), exact(b), exact(c)
    same(merge(merge(a, b), c), merge(a, merge(b, c)))


@given(samples)
def test_nothing_merged_changes_nothing(a):
    nothing = exact(np.zeros((0, 2)))
    same(merge(exact(a), nothing), exact(a))
    same(merge(nothing, exact(a)), exact(a))


def test_the_server_keeps_float64():
    merged = merge(exact(np.ones((3, 2))), exact(np.zeros((2, 2))))
    assert {np.asarray(x).dtype for x in (merged.count, merged.mean, merged.squares)} == {
        np.dtype(np.float64)
    }


def test_a_batch_agrees_with_numpy_over_the_true_entries():
    rng = np.random.default_rng(0)
    x, mask = rng.normal(3, 2, (6, 5, 2)).astype(np.float32), rng.random((6, 5)) < 0.4
    moments = of_batch(jnp.where(mask[..., None], x, 1e6), jnp.asarray(mask))
    assert float(moments.count) == mask.sum()
    np.testing.assert_allclose(moments.mean, x[mask].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.squares / moments.count, x[mask].var(axis=0), rtol=1e-5)


def test_a_batch_of_scalars_has_scalar_moments():
    moments = of_batch(jnp.array([[1.0, 5.0], [3.0, 7.0]]), jnp.array([[True, False], [True] * 2]))
    assert moments.mean.shape == ()
    assert float(moments.mean) == pytest.approx(11 / 3)


def test_a_mean_far_from_zero_costs_no_precision():
    """The textbook formula E[x^2] - E[x]^2 would lose this deviation in float32 altogether."""
    x = 5000.0 + jnp.tile(jnp.array([-0.125, 0.125]), 500)
    halves = of_batch(x[:500], jnp.ones(500, bool)), of_batch(x[500:], jnp.ones(500, bool))
    assert float(deviation(merge(*halves))) == pytest.approx(0.125, rel=1e-2)


def test_deviation_is_one_until_two_samples_were_seen_and_never_below_the_floor():
    np.testing.assert_array_equal(deviation(empty(2)), [1, 1])
    one = of_batch(jnp.array([7.0]), jnp.array([True]))
    assert float(deviation(one)) == 1
    assert float(deviation(merge(one, one))) == pytest.approx(1e-4)
    assert float(deviation(merge(one, one), floor=0.5)) == 0.5


def test_standardising_takes_the_mean_away_and_clips():
    moments = Moments(jnp.array(4.0), jnp.array([1.0, 0.0]), jnp.array([16.0, 4.0]))
    x = jnp.array([[5.0, 1.0], [-99.0, 99.0]])
    np.testing.assert_allclose(standardise(moments, x, 3.0), [[2, 1], [-3, 3]])
    np.testing.assert_array_equal(standardise(None, x, 3.0), x)


def test_rescaling_leaves_the_mean_and_the_sign_alone():
    moments = Moments(jnp.array(4.0), jnp.array(100.0), jnp.array(16.0))
    np.testing.assert_allclose(rescale(moments, jnp.array([5.0, -1.0, 99.0]), 3.0), [2.5, -0.5, 3])
    np.testing.assert_array_equal(rescale(None, jnp.array([5.0]), 3.0), [5])
