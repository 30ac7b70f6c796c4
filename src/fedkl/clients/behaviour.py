"""A client's behaviour, the same inside jit and on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from fedkl.clients.learner import Learner
from fedkl.io.arrays import Array
from fedkl.learning import statistics
from fedkl.learning.policy import Policy
from fedkl.learning.statistics import Moments
from fedkl.simulators.actors import ACTIVATIONS, Actor
from fedkl.simulators.base import Seed


class Behaviour(eqx.Module):
    """A policy on standardised observations; called with a batch of them, it acts."""

    learner: Learner
    policy: Policy
    observations: Moments | None
    """The statistics that observations are standardised with."""
    iterations: Int[Array, ""]
    """Local iterations that the client has finished."""
    deterministic: bool = eqx.field(default=False, static=True)
    """Take the mode of the policy instead of a sample."""

    def __call__(self, observation: Float[Array, "n o"], key: PRNGKeyArray) -> Array:
        clip, explore = self.learner.observation_clip, self.learner.uniform_exploration
        actions = self.policy(statistics.standardise(self.observations, observation, clip))
        if self.deterministic:
            return actions.mode()
        action = actions.sample(key)
        if explore == 0.0 or action.ndim == 1:
            return action
        # The authors' code does this until a client has finished its first local iteration.
        which, what = jax.random.split(jax.random.fold_in(key, 1))
        uniform = jax.random.bernoulli(which, explore, action.shape[:1]) & (self.iterations == 0)
        return jnp.where(uniform[:, None], jax.random.uniform(what, action.shape), action)

    def actor(self) -> Actor:
        """The same for a simulator that JAX cannot step; `actors` adds the seeds of its noise."""
        network = self.policy.network
        size = network.weights[0].shape[:1]
        seeing: tuple[Any, Any, Any] = (jnp.zeros(size), jnp.ones(size), jnp.asarray(jnp.inf))
        if self.observations is not None:
            limit = jnp.asarray(self.learner.observation_clip)
            deviation = statistics.deviation(self.observations)
            seeing = (self.observations.mean, deviation, limit)
        explore = jnp.where(self.iterations == 0, self.learner.uniform_exploration, 0.0)
        noise = jnp.ones(())
        if self.deterministic:
            explore = noise = jnp.zeros(())
        log_std = self.policy.log_std
        spread = None if log_std is None else noise * jnp.exp(log_std)
        activation = jnp.asarray(ACTIVATIONS.index(network.activation))
        return Actor(
            network.weights, network.biases, spread, *seeing, explore, (), noise, activation
        )


def actors(stacked: Actor, seeds: Sequence[Sequence[Seed]]) -> list[Actor]:
    """Several clients' actors, ready for a job.

    Args:
        stacked: `Behaviour.actor` of each client, stacked.
        seeds: of the noise on each one's actions in each column.
    """
    arrays = jax.device_get(stacked)
    result = []
    for n, columns in enumerate(seeds):
        own: Actor = jax.tree.map(lambda x, n=n: x[n], arrays)
        result.append(
            own._replace(
                clip=float(own.clip),
                exploration=float(own.exploration),
                temperature=float(own.temperature),
                activation=int(own.activation),
                seeds=tuple(columns),
            )
        )
    return result


def seeds_of(words: Array | np.ndarray) -> list[Seed]:
    """The seeds that JAX keys stand for on the host, from the `jax.random.key_data` of each."""
    rows = np.asarray(words)
    return [Seed(tuple(int(word) for word in row)) for row in rows.reshape(-1, rows.shape[-1])]
