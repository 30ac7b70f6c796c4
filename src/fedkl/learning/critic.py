"""The critic: an MLP that estimates the value of a state, with its own optimiser."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from fedkl.io.arrays import Array
from fedkl.learning import minibatches
from fedkl.learning.policy import MLP
from fedkl.learning.settings import CriticSettings
from fedkl.worlds.base import AnyWorld


class CriticBatch(NamedTuple):
    """The critic's data: states and their target values."""

    observation: Float[Array, "m o"]
    target: Float[Array, " m"]
    weight: Float[Array, " m"]


def padding(world: AnyWorld, settings: CriticSettings, samples: int) -> CriticBatch:
    """A batch of samples that do not count."""
    none = jnp.zeros(samples)
    return CriticBatch(jnp.zeros((samples, inputs(world, settings))), none, none)


def with_replay(previous: CriticBatch | None, batch: CriticBatch) -> CriticBatch:
    """Put the batch of the iteration before, if it is replayed, in front of this one."""
    if previous is None:
        return batch
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), previous, batch)


def new_critic(world: AnyWorld, settings: CriticSettings, key: PRNGKeyArray) -> MLP:
    """A critic for the observations of `world`."""
    sizes = (inputs(world, settings), *settings.hidden, 1)
    return MLP(sizes, key, activation=settings.activation)


def inputs(world: AnyWorld, settings: CriticSettings) -> int:
    """Return the width of a critic's input: the observation, and the time left if it sees that."""
    return world.observation_size + settings.sees_time


def with_time(
    observation: Float[Array, "*b o"], elapsed: Int[Array, "*b"], limit: int
) -> Float[Array, "*b o+1"]:
    """Append to each observation the share of the time limit that is left, on a scale from 1 (all
    of it) to -1 (none).

    Args:
        observation: of some steps.
        elapsed: how many steps of its episode each of them has behind it.
        limit: how many there can be.
    """
    left = (1 - 2 * jnp.arange(limit + 1, dtype=observation.dtype) / limit)[elapsed]
    return jnp.concatenate([observation, left[..., None]], axis=-1)


def values(critic: MLP, observation: Float[Array, "*b o"]) -> Float[Array, "*b"]:
    """The critic's value of each state."""
    return critic(observation)[..., 0]


def optimiser(settings: CriticSettings) -> optax.GradientTransformation:
    """Adam at the critic's own step size."""
    return optax.adam(settings.learning_rate)


def improve_critic(
    settings: CriticSettings,
    critic: MLP,
    optimiser_state: PyTree,
    batch: CriticBatch,
    key: PRNGKeyArray,
) -> tuple[MLP, PyTree]:
    """Regress the critic on the batch's targets for the configured epochs.

    Returns:
        The critic and its optimiser's state.
    """

    def gradient(critic: MLP, part: CriticBatch, _: Array) -> MLP:
        def loss(critic: MLP) -> Float[Array, ""]:
            error = values(critic, part.observation) - part.target
            squares = sum(jnp.sum(w**2) for w in critic.weights)
            return minibatches.weighted_mean(error**2, part.weight) + settings.l2 * squares

        return jax.grad(loss)(critic)

    batches = minibatches.shuffled(batch, settings.epochs, settings.minibatch, key)
    return minibatches.descend(gradient, optimiser(settings), critic, optimiser_state, batches)
