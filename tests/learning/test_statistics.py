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

clean = jax.jit(without_outliers, static_argnums=2)


def everything(x):
    return jnp.ones(len(x), bool)


def usual(n=10_000, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def broken(share, reading, n=10_000, seed=0):
    """Usual data, in which a share is one and the same reading."""
    x = usual(n, seed)
    some = np.random.default_rng([seed, 1]).permutation(n)[: round(share * n)]
    x[some] = reading
    return x, some


def untouched(x, weights, limit):
    cleaned, outlier = clean(x, weights, limit)
    np.testing.assert_array_equal(cleaned, x)
    assert not outlier.any()


@pytest.mark.parametrize("share", [1e-4, 1e-2, 0.1, 0.19])
@pytest.mark.parametrize("reading", [60.0, -1e3, 1e5, -1e12, 1e30, 3e38, np.inf])
def test_broken_readings_move_neither_mean_nor_deviation(share, reading):
    """Plainly, 1e5 in a hundredth of all would make them 1e3 and 1e4, and be no 20 deviations."""
    x, some = broken(share, reading)
    cleaned, outlier = clean(x, everything(x), 8.0)
    assert np.flatnonzero(outlier).tolist() == sorted(some)
    moments = of_batch(cleaned, everything(x))
    assert float(moments.count) == len(x)
    assert float(moments.mean) == pytest.approx(0, abs=0.03)
    assert float(deviation(moments)) == pytest.approx(np.sqrt(1 - share), abs=0.03)


def test_a_reading_that_is_no_outlier_stays_where_it_is():
    x, some = broken(0.01, 1e5)
    cleaned, _ = clean(x, everything(x), 8.0)
    np.testing.assert_array_equal(np.delete(cleaned, some), np.delete(x, some))


def test_outliers_of_many_sizes_hide_neither_each_other_nor_themselves():
    x = usual()
    x[:4] = [1e30, 1e7, -1e5, 1e3]
    assert np.flatnonzero(clean(x, everything(x), 8.0)[1]).tolist() == [0, 1, 2, 3]


def test_each_feature_has_outliers_of_its_own():
    """A thousand is far out among numbers of size 1, and nothing special among thousands."""
    x = np.stack([usual(), 1000 * usual(seed=1)], axis=1)
    x[77] = 1000.0
    _, outlier = clean(x, everything(x), 8.0)
    assert np.argwhere(outlier).tolist() == [[77, 0]]


# What is subnormal is 0 to XLA.
ordinary = st.floats(-8, 8, width=32, allow_subnormal=False)


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.just(2)), elements=ordinary))
@settings(max_examples=30, deadline=None)
def test_readings_of_an_ordinary_size_are_no_outliers_among_whatever_others(x):
    untouched(x, everything(x), 8.0)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("centre", [0.0, 1e3, 1e12])
def test_ordinary_data_stay_the_very_same(size, centre):
    untouched(size * usual() + np.float32(centre), everything(usual()), 8.0)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e-3, 12345.678, 1e35])
def test_what_is_constant_has_no_outlier(value):
    untouched(np.full(1000, value, np.float32), jnp.ones(1000, bool), 8.0)


@pytest.mark.parametrize("share", [1e-3, 0.1, 0.5, 0.9])
def test_what_is_binary_has_no_outlier(share):
    untouched(
        np.asarray(np.arange(10_000) < 10_000 * share, np.float32), jnp.ones(10_000, bool), 8.0
    )


def test_what_a_fifth_of_the_readings_say_is_usual():
    x, _ = broken(0.21, 1e5)
    untouched(x, everything(x), 8.0)


def test_the_seldom_large_readings_of_a_fast_start_are_no_outliers():
    """An arm that rests for nine tenths of the time: half of all speeds are below 0.01, and the
    largest is 30, with all sizes in between."""
    speed = 30 * np.exp(-np.arange(50) / 3.0)
    x = np.tile(speed, 40).astype(np.float32)
    assert np.median(x) < 0.02
    untouched(x, everything(x), 8.0)


def test_a_seldom_reward_is_no_outlier_within_the_limit_of_rewards():
    """A goal that pays 100 where a step costs 0.1 at the most (mountain-car-continuous)."""
    x = -0.1 * np.square(usual(2000))
    x[500::997] = 100.0
    untouched(x, everything(x), 400.0)


def test_entries_that_do_not_count_neither_are_outliers_nor_shelter_any():
    x, counts = usual(), np.ones(10_000, bool)
    counts[:5000] = False
    padded = np.where(counts, x, np.float32(1e15))
    untouched(padded, counts, 8.0)
    padded[-1] = 1e5
    cleaned, outlier = clean(padded, counts, 8.0)
    assert np.flatnonzero(outlier).tolist() == [9999]
    moments = of_batch(cleaned, jnp.asarray(counts))
    assert float(moments.count) == 5000
    assert float(deviation(moments)) == pytest.approx(1, abs=0.03)


def test_nothing_is_an_outlier_where_nothing_counts_nor_beyond_an_infinite_limit():
    x, _ = broken(0.01, 1e15)
    untouched(x, jnp.zeros(len(x), bool), 8.0)
    untouched(x, everything(x), jnp.inf)


def test_a_nan_stays_for_the_server_to_refuse():
    x = usual()
    x[3] = np.nan
    cleaned, outlier = clean(x, everything(x), 8.0)
    assert np.isnan(float(cleaned[3]))
    assert not outlier.any()


def test_batches_side_by_side_do_as_they_would_alone():
    """With and without outliers, together in one vmapped call."""
    x = np.stack([usual(2000, seed) for seed in range(3)])
    x[1, 5] = 1e6
    x[2, 5:100] = -300.0
    together, outliers = jax.vmap(lambda x, weights: without_outliers(x, weights, 8.0))(
        x, jnp.ones(x.shape, bool)
    )
    for i, row in enumerate(x):
        alone, outlier = clean(row, everything(row), 8.0)
        np.testing.assert_allclose(together[i], alone, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(outliers[i], outlier)
    np.testing.assert_array_equal(together[0], x[0])


def test_the_axes_of_a_batch_do_not_matter():
    """Steps and episodes of one feature, of which some are padding."""
    x, counts = usual(2000).reshape(50, 40, 1), np.arange(50)[:, None] < np.arange(20, 60)[None]
    x[0, 0] = 1e6
    flat, outlier = clean(x.reshape(2000, 1), counts.reshape(2000), 5.0)
    np.testing.assert_allclose(clean(x, counts, 5.0)[0].reshape(2000, 1), flat, rtol=1e-5)
    assert outlier[:, 0].nonzero()[0].tolist() == [0]


# XLA takes subnormal numbers for 0.
wild = st.one_of(*(st.floats(-size, size, width=32, allow_subnormal=False) for size in (5, 1e6)))


@given(
    hnp.arrays(np.float32, st.just((50, 2)), elements=wild),
    hnp.arrays(np.bool_, st.just(50)),
    st.floats(1.5, 30, width=32),
)
@settings(max_examples=100, deadline=None)
def test_at_most_a_fifth_are_outliers_and_a_gap_divides_them_from_the_others(x, counts, limit):
    pulled, outlier = (np.asarray(a) for a in clean(x, counts, limit))
    assert not outlier[~counts].any()
    np.testing.assert_array_equal(pulled[~outlier], x[~outlier])
    for f in range(2):
        own, usual_ones = outlier[:, f], np.abs(x[counts & ~outlier[:, f], f])
        assert own.sum() <= 0.2 * counts.sum()
        if own.any():
            most = max(1.0, usual_ones.max())
            assert np.abs(x[own, f]).min() > 0.999 * limit * most
            assert (np.abs(pulled[own, f]) <= 1.001 * most).all()
