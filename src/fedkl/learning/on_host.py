"""Acting on the host: `behaviour` for a simulator that JAX cannot step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedkl.learning import statistics
from fedkl.learning.local_training import Task
from fedkl.learning.policy import Policy
from fedkl.learning.rollout import Trajectories
from fedkl.learning.statistics import Moments
from fedkl.simulators.actors import Mind
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import Episode


class Acting(NamedTuple):
    """What a client acts with, as arrays: those of a `Mind`."""

    weights: tuple[Float[Array, "i o"], ...]
    biases: tuple[Float[Array, " o"], ...]
    deviation: Float[Array, " a"]
    centre: Float[Array, " o"]
    scale: Float[Array, " o"]
    clip: Float[Array, ""]


def acting(task: Task, policy: Policy, observations: Moments | None) -> Acting:
    """The arrays that a client acts with: its policy, and the statistics that it sees with."""
    assert policy.log_std is not None
    network = policy.network
    size = network.weights[0].shape[:1]
    seeing = (jnp.zeros(size), jnp.ones(size), jnp.asarray(jnp.inf))
    if observations is not None:
        limit = jnp.asarray(task.learner.observation_clip)
        seeing = (observations.mean, statistics.deviation(observations), limit)
    return Acting(network.weights, network.biases, jnp.exp(policy.log_std), *seeing)


def minds(
    task: Task,
    stacked: Acting,
    iterations: Int[Array, " n"] | Int[np.ndarray, " n"],
    seeds: Sequence[Seed],
    deterministic: bool = False,
) -> list[Mind]:
    """How clients act: `behaviour` for a simulator.

    Args:
        task: world, algorithm and settings.
        stacked: what they act with.
        iterations: local iterations that each has finished.
        seeds: of the noise on their actions.
        deterministic: the mean, without any noise.
    """
    arrays = jax.device_get(stacked)
    result = []
    for n, (seed, done) in enumerate(zip(seeds, np.asarray(iterations), strict=True)):
        own: Any = jax.tree.map(lambda x, n=n: x[n], arrays)
        explores = not deterministic and done == 0
        result.append(
            Mind(
                weights=own.weights,
                biases=own.biases,
                deviation=np.zeros_like(own.deviation) if deterministic else own.deviation,
                centre=own.centre,
                scale=own.scale,
                clip=float(own.clip),
                exploration=task.learner.uniform_exploration if explores else 0.0,
                seed=seed,
            )
        )
    return result


def trajectories(episodes: Sequence[Episode], agents: Sequence[int]) -> Trajectories:
    """What some agents saw, did and were rewarded with, stacked by agent."""

    def each(name: str) -> Any:
        """Axes: agent, step, episode."""
        stacked = np.stack([getattr(e, name)[:, agents] for e in episodes], axis=2)
        return np.moveaxis(stacked, 0, 1)

    def common(name: str) -> Any:
        stacked = np.stack([getattr(e, name) for e in episodes], axis=1)
        return np.broadcast_to(stacked, (len(agents), *stacked.shape))

    last: Any = np.stack([e.last_observation[agents] for e in episodes], axis=1)
    return Trajectories(
        observation=each("observation"),
        action=each("action"),
        reward=each("reward"),
        terminated=common("terminated"),
        mask=common("mask"),
        last_observation=last,
    )


def seeds_of(key_data: Array | np.ndarray) -> list[Seed]:
    """The seeds that JAX keys stand for on the host, from the `jax.random.key_data` of each."""
    words = np.asarray(key_data)
    return [Seed(tuple(int(word) for word in row)) for row in words.reshape(-1, words.shape[-1])]
