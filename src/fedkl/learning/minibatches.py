"""Epochs of shuffled minibatches, and the loop of gradient steps over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from fedkl.io.arrays import Array

P = TypeVar("P")
Gradient = Callable[[P, PyTree, Int[Array, ""]], P]


def count(samples: int, epochs: int, minibatch: int) -> int:
    """Return the number of gradient steps in `epochs` passes over `samples` samples."""
    return epochs * (samples // min(minibatch, samples))


def shuffled(data: PyTree, epochs: int, minibatch: int, key: PRNGKeyArray) -> PyTree:
    """Every leaf as (steps, minibatch, ...), shuffled anew in each epoch.

    A remainder smaller than a minibatch is left out of that epoch (another one each time). All
    epochs are gathered at once: inside the loop of gradient steps a gather would cost as much as
    a layer.
    """
    samples = jax.tree.leaves(data)[0].shape[0]
    size = min(minibatch, samples)
    used = samples - samples % size
    order = permutations(key, epochs, samples)[:, :used].reshape(-1, size)
    return jax.tree.map(lambda x: x[order], data)


def permutations(key: PRNGKeyArray, number: int, samples: int) -> Int[Array, "number samples"]:
    """Random orders of 0 .. samples - 1.

    Each index is put into the low bits of a random word, and the words are sorted: on a CPU that is
    several times as fast as sorting indices by random keys. It leaves at least 19 random bits, of
    which two samples share all in one case in half a million (they then keep their order). Larger
    batches, which would leave fewer, are sorted the slow way.
    """
    words = jax.random.bits(key, (number, samples))
    if samples > 8192:
        return jnp.argsort(words, axis=1)
    low = jnp.uint32(2 ** (samples - 1).bit_length() - 1)
    index = jnp.arange(samples, dtype=jnp.uint32)
    return (jnp.sort((words & ~low) | index, axis=1) & low).astype(jnp.int32)


def descend(
    gradient: Gradient[P],
    optimiser: optax.GradientTransformation,
    start: P,
    optimiser_state: PyTree,
    batches: PyTree,
    scale: Float[Array, ""] | float = 1.0,
) -> tuple[P, PyTree]:
    """One optimiser step for each minibatch.

    Args:
        gradient: of (parameters, minibatch, step number) with respect to the parameters.
        optimiser: turns gradients into updates.
        start: the first parameters.
        optimiser_state: the optimiser's state.
        batches: minibatches along the first axis.
        scale: factor on every update.

    Returns:
        The last parameters and the optimiser's state.
    """

    def step(carry: tuple[P, PyTree], now: tuple[Array, PyTree]) -> tuple[Any, None]:
        parameters, state = carry
        index, batch = now
        updates, state = optimiser.update(gradient(parameters, batch, index), state, parameters)
        return (jax.tree.map(lambda p, u: p + scale * u, parameters, updates), state), None

    steps = jax.tree.leaves(batches)[0].shape[0]
    return jax.lax.scan(step, (start, optimiser_state), (jnp.arange(steps), batches))[0]


def weighted_mean(x: Float[Array, "*b"], weight: Float[Array, "*b"]) -> Float[Array, ""]:
    """The mean over the entries with weight 1 (0 if there are none)."""
    return jnp.sum(weight * x) / jnp.maximum(jnp.sum(weight), 1)
