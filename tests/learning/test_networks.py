"""The MLP against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.learning.networks import MLP

KEY = jax.random.key(0)


@pytest.mark.parametrize("sizes", [(3, 2), (3, 5, 2), (2, 4, 6, 1)])
def test_is_dense_layers_with_tanh_between(sizes):
    network = jax.tree.map(lambda x: x + 0.1, MLP(sizes, KEY))
    x = np.random.default_rng(0).normal(size=(7, sizes[0]))
    expected = x
    for i, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        expected = (np.tanh(expected) if i else expected) @ np.asarray(w) + np.asarray(b)
    np.testing.assert_allclose(network(jnp.asarray(x, jnp.float32)), expected, rtol=1e-4)
    assert network(jnp.zeros(sizes[0])).shape == (sizes[-1],)


def test_weights_start_glorot_normal_and_biases_at_zero():
    network = MLP((200, 100, 50), KEY, output_scale=0.01)
    first, last = (np.asarray(w) for w in network.weights)
    assert first.std() == pytest.approx((2 / 300) ** 0.5, rel=0.03)
    assert last.std() == pytest.approx(0.01 * (2 / 150) ** 0.5, rel=0.05)
    assert abs(first.mean()) < 0.002
    assert not any(np.any(b) for b in network.biases)


def test_output_scale_changes_the_last_layer_only():
    one, small = MLP((3, 4, 2), KEY), MLP((3, 4, 2), KEY, output_scale=0.5)
    np.testing.assert_array_equal(one.weights[0], small.weights[0])
    np.testing.assert_allclose(one.weights[1] / 2, small.weights[1])
