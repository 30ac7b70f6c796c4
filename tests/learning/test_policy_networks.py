"""The MLP against NumPy."""

import jax
import numpy as np
import pytest

from fedkl.learning.policy import MLP

KEY = jax.random.key(0)
new = jax.jit(MLP, static_argnums=(0,), static_argnames="activation")
BETWEEN = {"tanh": np.tanh, "relu": lambda x: np.where(x > 0, x, 0)}


@pytest.mark.parametrize("activation", BETWEEN)
@pytest.mark.parametrize("sizes", [(3, 2), (2, 4, 6, 1)])
def test_is_dense_layers_with_an_activation_between(sizes, activation):
    made = new(sizes, KEY, activation=activation)
    network = jax.tree.map(lambda x: np.asarray(x) + 0.1, made)
    x = np.random.default_rng(0).normal(size=(7, sizes[0]))
    expected = x
    for i, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        expected = BETWEEN[activation](expected) if i else expected
        expected = expected @ np.asarray(w) + np.asarray(b)
    result = jax.jit(lambda network, x: network(x))(network, x)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert jax.eval_shape(network, x[0]).shape == (sizes[-1],)


def test_weights_start_glorot_normal_and_biases_at_zero():
    network = new((200, 100, 50), KEY, output_scale=0.01)
    first, last = (np.asarray(w) for w in network.weights)
    assert first.std() == pytest.approx((2 / 300) ** 0.5, rel=0.03)
    assert last.std() == pytest.approx(0.01 * (2 / 150) ** 0.5, rel=0.05)
    assert abs(first.mean()) < 0.002
    assert not any(np.any(b) for b in network.biases)


def test_output_scale_changes_the_last_layer_only():
    one, small = new((3, 4, 2), KEY), new((3, 4, 2), KEY, output_scale=0.5)
    np.testing.assert_array_equal(one.weights[0], small.weights[0])
    np.testing.assert_allclose(np.asarray(one.weights[1]) / 2, small.weights[1])
