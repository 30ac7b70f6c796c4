"""The multilayer perceptron that policies and critics are made of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, PRNGKeyArray

from fedkl.arrays import Array, Scalar
from fedkl.learning.products import dense


class MLP(eqx.Module):
    """Dense layers with tanh between them.

    It takes whole batches: the last axis is the feature axis. Weights start Glorot-normal, biases
    at zero.
    """

    weights: tuple[Float[Array, "i o"], ...]
    biases: tuple[Float[Array, " o"], ...]

    def __init__(self, sizes: Sequence[int], key: PRNGKeyArray, output_scale: Scalar = 1.0) -> None:
        """Args:
        sizes: width of the input, of every hidden layer, and of the output.
        key: for the initial weights.
        output_scale: factor on the last layer's initial weights.
        """
        glorot = jax.nn.initializers.glorot_normal()
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = list(itertools.pairwise(sizes))
        weights = [glorot(k, shape, jnp.float32) for k, shape in zip(keys, shapes, strict=True)]
        weights[-1] = weights[-1] * output_scale
        self.weights = tuple(weights)
        self.biases = tuple(jnp.zeros(o) for _, o in shapes)

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        *hidden, (weight, bias) = zip(self.weights, self.biases, strict=True)
        for w, b in hidden:
            x = jnp.tanh(dense(x, w, b))
        return dense(x, weight, bias)
