"""Epochs, minibatches and the loop of gradient steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from fedkl.learning.minibatches import count, descend, permutations, shuffled, weighted_mean

KEY = jax.random.key(3)
shuffle = jax.jit(shuffled, static_argnums=(1, 2))
SIZES = [(10, 2, 4), (12, 3, 4), (3, 2, 8), (5, 1, 5), (7, 4, 1)]


@pytest.mark.parametrize(("samples", "epochs", "minibatch"), SIZES)
def test_every_sample_comes_at_most_once_an_epoch(samples, epochs, minibatch):
    batches = shuffle(np.arange(samples), epochs, minibatch, KEY)
    size = min(minibatch, samples)
    assert batches.shape == (count(samples, epochs, minibatch), size)
    for epoch in np.asarray(batches).reshape(epochs, -1):
        assert len(set(epoch.tolist())) == len(epoch) == samples - samples % size
        assert set(epoch.tolist()) <= set(range(samples))


@pytest.mark.parametrize(
    ("sizes", "steps"), [((2048, 10, 64), 320), ((10, 2, 4), 4), ((3, 2, 8), 2), ((1, 1, 1), 1)]
)
def test_count_drops_the_remainder_of_each_epoch(sizes, steps):
    assert count(*sizes) == steps


def test_epochs_have_orders_and_remainders_of_their_own():
    epochs = np.asarray(shuffle(np.arange(10), 20, 4, KEY)).reshape(20, 8)
    assert len({tuple(e) for e in epochs}) == 20
    assert set(epochs.ravel().tolist()) == set(range(10))


def test_all_leaves_are_shuffled_alike():
    x = np.arange(9)
    batches = shuffle({"a": x, "b": np.stack([x * 10, x * 100], axis=1)}, 2, 4, KEY)
    np.testing.assert_array_equal(batches["b"][..., 0], batches["a"] * 10)
    np.testing.assert_array_equal(batches["b"][..., 1], batches["a"] * 100)


def test_orders_are_uniform():
    """Each sample is as likely as any other to come first (chi-squared over 6000 epochs)."""
    first = np.asarray(shuffle(np.arange(6), 6000, 6, KEY))[:, 0]
    observed = np.bincount(first, minlength=6)
    assert ((observed - 1000) ** 2 / 1000).sum() < 20.5  # 0.1 % of a chi-squared with 5 degrees


def test_descending_agrees_with_a_plain_loop():
    batches = jnp.array([1.0, 4.0, -2.0])

    def gradient(w, target, step):
        return (w - target) * (step + 1)

    sgd = optax.sgd(0.1)
    end, _ = descend(gradient, sgd, jnp.array(0.5), sgd.init(jnp.array(0.5)), batches, 0.5)
    w = 0.5
    for step, target in enumerate([1.0, 4.0, -2.0]):
        w -= 0.5 * 0.1 * (w - target) * (step + 1)
    assert float(end) == pytest.approx(w)


def test_the_optimisers_state_is_kept():
    adam = optax.adam(0.1)
    _, state = descend(
        lambda w, b, _: w - b, adam, jnp.ones(2), adam.init(jnp.ones(2)), jnp.ones(3)
    )
    assert int(state[0].count) == 3


def test_the_weighted_mean_ignores_padding_and_is_zero_over_nothing():
    x = jnp.array([1.0, 5.0, 99.0])
    assert float(weighted_mean(x, jnp.array([1.0, 1.0, 0.0]))) == 3
    assert float(weighted_mean(x, jnp.zeros(3))) == 0


@pytest.mark.parametrize("samples", [1, 2, 3, 64, 1000, 4096, 8192, 8193])
def test_permutations_hold_every_index_once(samples):
    orders = np.asarray(permutations(KEY, 3, samples))
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(samples), (3, 1)))


def test_all_orders_are_equally_likely():
    orders = np.asarray(permutations(KEY, 60_000, 4))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    # 2,500 expected of each, standard deviation 49
    assert stats.chisquare(counts).pvalue > 1e-4
