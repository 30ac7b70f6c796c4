"""The basis that advantages are fitted and compared in: features of states times functions of
actions.

All clients must have the same one, so whatever is random in it is drawn from one seed for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedkl.arrays import Array
from fedkl.learning.distributions import Categorical, Distribution, Gaussian

SEED = 0
"""Of the basis, everywhere and always: vectors in two bases cannot be compared."""

StateBasis = Callable[[Float[Array, "*b o"], int, float], Float[Array, "*b f"]]


def fourier(state: Float[Array, "*b o"], number: int, length_scale: float) -> Float[Array, "*b f"]:
    """Random Fourier features (Rahimi and Recht 2007): their products are close to a Gaussian
    kernel, so states near to each other count as alike, in any dimension. The first is constant.

    Args:
        state: standardised observations.
        number: of features.
        length_scale: distance over which states are alike, in deviations of an observation's
            entries; entries are averaged over, so that it suits many as it suits few.
    """
    entries = state.shape[-1]
    directions, phases = jax.random.split(jax.random.key(SEED))
    spread = 1 / (length_scale * math.sqrt(entries))
    frequency = spread * jax.random.normal(directions, (entries, number), state.dtype)
    phase = jax.random.uniform(phases, (number,), state.dtype, maxval=2 * math.pi)
    angle = state @ frequency.at[:, 0].set(0.0) + phase.at[0].set(0.0)
    return math.sqrt(2 / number) * jnp.cos(angle)


def buckets(state: Float[Array, "*b o"], number: int, length_scale: float) -> Float[Array, "*b f"]:
    """One-hot cells of rounded observations, as the paper's matrices have rows.

    A cell's number is a sum over its coordinates, each times a number of its own, modulo the number
    of features. So states that are told as a one-hot vector or as a whole number have a feature
    each, if there are features enough; other cells may share one by chance.

    Args:
        state: standardised observations.
        number: of features.
        length_scale: width of a cell.
    """
    entries = state.shape[-1]
    cell = jnp.round(state / length_scale).astype(jnp.int32)
    drawn = jax.random.permutation(jax.random.key(SEED), number)
    factor = (drawn - drawn[0] + 1) % number  # all different, and the first is 1
    factor = jnp.take(factor, jnp.arange(entries), mode="wrap")
    return jax.nn.one_hot(jnp.sum(cell * factor, axis=-1) % number, number, dtype=state.dtype)


STATE_BASES: dict[str, StateBasis] = {f.__name__: f for f in (fourier, buckets)}


def centred(actions: Distribution, action: Array) -> Float[Array, "*b k"]:
    """Functions of the action taken, whose mean under pi is 0 in every state.

    Of finitely many actions, an indicator of each less its probability. Of a Gaussian, the first
    two orthonormal polynomials in each entry's distance from the mean, in deviations: all that a
    small change of the policy's mean and deviation can see of an advantage.
    """
    if isinstance(actions, Categorical):
        probability = jax.nn.softmax(actions.logits)
        return jax.nn.one_hot(action, probability.shape[-1]) - probability
    assert isinstance(actions, Gaussian)
    noise = (action - actions.mean) * jnp.exp(-actions.log_std)
    return jnp.concatenate([noise, (noise**2 - 1) / math.sqrt(2)], axis=-1)


def over_actions(
    actions: Distribution, weights: Float[Array, "*b k"]
) -> tuple[Float[Array, "*b k"], Float[Array, "*b k"]]:
    """The advantage that has these weights on `centred` functions, in each state.

    Returns:
        The products with all functions, summed over actions: with an indicator of each of finitely
        many actions, all alike, or with the polynomials of a Gaussian, whose actions count by
        their density (without any weight there would be no end to them). And those with the
        `centred` functions, in the mean under pi.
    """
    if isinstance(actions, Gaussian):
        return weights, weights  # orthonormal under pi
    probability = jax.nn.softmax(actions.logits)
    advantage = weights - jnp.sum(probability * weights, axis=-1, keepdims=True)
    return advantage, probability * advantage
