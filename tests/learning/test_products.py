"""Products that do not depend on the number of threads are still products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.learning.products import dense, sum_of_products


def test_a_sum_of_products_is_over_samples():
    a = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    b = jnp.array([[1.0], [10.0], [100.0]])
    assert sum_of_products(a, b).tolist() == [[531.0], [642.0]]


def test_a_dense_layer_and_its_gradients_by_hand():
    x, weight = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[5.0], [6.0]])
    bias = jnp.array([0.5])
    assert dense(x, weight, bias).tolist() == [[17.5], [39.5]]
    of_x, of_weight, of_bias = jax.grad(lambda x, w, b: jnp.sum(dense(x, w, b)), argnums=(0, 1, 2))(
        x, weight, bias
    )
    assert of_x.tolist() == [[5.0, 6.0], [5.0, 6.0]]
    assert of_weight.tolist() == [[4.0], [6.0]]
    assert of_bias.tolist() == [2.0]


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3)], ids=["one", "batch", "two axes"])
@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_of_any_kind_are_those_of_the_plain_layer(shape, compiled):
    keys = jax.random.split(jax.random.key(0), 4)
    x, weight = jax.random.normal(keys[0], shape), jax.random.normal(keys[1], (3, 4))
    bias = jax.random.normal(keys[3], (4,))
    direction = jax.random.normal(keys[2], weight.shape)

    def derivatives(layer):
        def loss(x, weight, bias):
            return jnp.sum(jnp.tanh(layer(x, weight, bias)) ** 2)

        def along(weight, bias):
            return jax.grad(loss, argnums=(1, 2))(x, weight, bias)

        return (
            jax.grad(loss, argnums=(0, 1, 2))(x, weight, bias),
            jax.jvp(lambda w, b: layer(x, w, b), (weight, bias), (direction, bias)),
            jax.jvp(along, (weight, bias), (direction, bias)),  # a product with the Hessian
            jax.vmap(along)(jnp.stack([weight] * 2), jnp.stack([bias] * 2)),
        )

    make = jax.jit(derivatives, static_argnums=0) if compiled else derivatives
    ours, plain = make(dense), make(lambda x, w, b: x @ w + b)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
