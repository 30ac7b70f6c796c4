"""Merged moments are those of all samples together, in any order; outliers do not set them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
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
    without_outliers,
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


# Outliers.

pull_in = jax.jit(without_outliers, static_argnums=2)


def everything(x):
    return jnp.ones(len(x), bool)


def usual(n=100_000, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("reading", [1e5, -1e5, 1e12])
def test_one_broken_reading_in_a_hundred_thousand_hardly_moves_mean_or_deviation(reading):
    """Without it they are 0 and 1; plainly, 1e5 would make them 1 and 316."""
    x = usual()
    x[77] = reading
    pulled = pull_in(x, everything(x), 20.0)
    moments = of_batch(pulled, everything(x))
    assert float(moments.mean) == pytest.approx(0, abs=0.01)
    assert float(deviation(moments)) == pytest.approx(1, abs=0.02)
    # It ends at its own side, about as far out as is allowed: 20 (1 + 1) from the mean.
    assert abs(float(pulled[77])) == pytest.approx(40, rel=0.05)
    assert np.sign(float(pulled[77])) == np.sign(reading)


def test_whoever_is_no_outlier_stays_where_it_is():
    x = usual()
    x[77] = 1e5
    np.testing.assert_array_equal(np.delete(pull_in(x, everything(x), 20.0), 77), np.delete(x, 77))


def test_several_outliers_hide_neither_each_other_nor_themselves():
    """At first only the largest is beyond the deviation that it stretches."""
    x = usual(10_000)
    x[:3] = [1e7, -1e5, 1e3]
    pulled = pull_in(x, everything(x), 20.0)
    assert np.abs(pulled).max() < 60
    assert float(deviation(of_batch(pulled, everything(x)))) == pytest.approx(1, abs=0.3)


def test_each_feature_has_outliers_of_its_own():
    """A thousand is far out among numbers of size 1, and nothing special among thousands."""
    x = np.stack([usual(), 1000 * usual(seed=1)], axis=1)
    x[77] = 1000.0
    pulled = pull_in(x, everything(x), 20.0)
    assert float(pulled[77, 0]) < 50
    np.testing.assert_array_equal(pulled[:, 1], x[:, 1])


# What is subnormal is 0 to XLA.
ordinary = st.floats(-30, 30, width=32, allow_subnormal=False)


@given(hnp.arrays(np.float32, st.tuples(st.just(40), st.just(2)), elements=ordinary))
@settings(max_examples=30, deadline=None)
def test_a_small_batch_has_no_outliers_and_stays_the_very_same(x):
    """40 entries, and 7^2 = 49: nothing can be further out than sqrt(39) deviations."""
    np.testing.assert_array_equal(pull_in(x, everything(x), 7.0), x)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("centre", [0.0, 1e3])
def test_ordinary_data_stay_the_very_same(size, centre):
    x = size * usual() + np.float32(centre)
    np.testing.assert_array_equal(pull_in(x, everything(x), 20.0), x)


def test_at_most_the_limit_squared_entries_have_no_outlier_whatever_is_in_them():
    x = np.zeros(400, np.float32)
    x[3] = 1e15
    np.testing.assert_array_equal(pull_in(x, everything(x), 20.0), x)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e-3, 12345.678])
def test_what_is_constant_has_no_outlier(value):
    x = np.full(1000, value, np.float32)
    np.testing.assert_array_equal(pull_in(x, everything(x), 20.0), x)


def test_an_honest_jump_from_a_constant_is_no_outlier_and_an_absurd_one_is():
    """A sensor that says 0 and now and then 10, which is no 20 times 1 away."""
    x = np.zeros(100_000, np.float32)
    x[3] = 10.0
    np.testing.assert_array_equal(pull_in(x, everything(x), 20.0), x)
    x[3] = 1e5
    assert float(pull_in(x, everything(x), 20.0)[3]) == pytest.approx(20, rel=0.1)


def test_entries_that_do_not_count_neither_are_outliers_nor_shelter_any():
    x, counts = usual(), np.ones(100_000, bool)
    counts[:50_000] = False
    padded = np.where(counts, x, np.float32(1e15))
    pulled = pull_in(padded, counts, 20.0)
    np.testing.assert_array_equal(pulled[counts], x[counts])
    padded[-1] = 1e5
    moments = of_batch(pull_in(padded, counts, 20.0), jnp.asarray(counts))
    assert float(moments.count) == 50_000
    assert float(deviation(moments)) == pytest.approx(1, abs=0.03)


def test_an_infinite_limit_lets_everything_pass():
    x = np.zeros(1000, np.float32)
    np.testing.assert_array_equal(pull_in(x, everything(x), jnp.inf), x)
    x[3] = 1e15
    np.testing.assert_array_equal(pull_in(x, everything(x), jnp.inf), x)


def test_batches_side_by_side_do_as_they_would_alone():
    """With and without outliers, together in one vmapped call."""
    x = np.stack([usual(2000, seed) for seed in range(3)])
    x[1, 5] = 1e6
    x[2, 5] = -300.0
    together = jax.vmap(lambda x, weights: without_outliers(x, weights, 5.0))(
        x, jnp.ones(x.shape, bool)
    )
    for row, pulled in zip(x, together, strict=True):
        np.testing.assert_allclose(pulled, pull_in(row, everything(row), 5.0), rtol=1e-5)
    np.testing.assert_array_equal(together[0], x[0])


def test_the_axes_of_a_batch_do_not_matter():
    """Steps and episodes of one feature, of which some are padding."""
    x, counts = usual(2000).reshape(50, 40, 1), np.arange(50)[:, None] < np.arange(20, 60)[None]
    x[0, 0] = 1e6
    flat = pull_in(x.reshape(2000, 1), counts.reshape(2000), 5.0)
    np.testing.assert_allclose(pull_in(x, counts, 5.0).reshape(2000, 1), flat, rtol=1e-5)
    assert float(flat[0, 0]) < 20


# XLA takes subnormal numbers for 0.
wild = st.one_of(*(st.floats(-size, size, width=32, allow_subnormal=False) for size in (5, 1e6)))


@given(
    hnp.arrays(np.float32, st.just((50, 2)), elements=wild),
    hnp.arrays(np.bool_, st.just(50)),
    st.floats(1.5, 30, width=32),
)
@settings(max_examples=100, deadline=None)
def test_pulling_in_never_widens_a_batch(x, counts, limit):
    pulled = np.asarray(pull_in(x, counts, limit))
    plain, after = of_batch(x, jnp.asarray(counts)), of_batch(pulled, jnp.asarray(counts))
    assert float(after.count) == float(plain.count)
    slack = 1e-5 * np.abs(x).max() ** 2
    assert (np.asarray(after.squares) <= np.asarray(plain.squares) * (1 + 1e-4) + slack).all()
    # What moved came nearer to the others, and did not pass them.
    real, was = pulled[counts], x[counts]
    if len(real):
        assert (real.max(axis=0) <= was.max(axis=0)).all()
        assert (real.min(axis=0) >= was.min(axis=0)).all()
