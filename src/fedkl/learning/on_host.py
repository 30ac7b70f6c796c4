"""Acting on the host: `behaviour` for a simulator that JAX cannot step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from fedkl.learning import statistics
from fedkl.learning.local_training import Task
from fedkl.learning.policy import Policy
from fedkl.learning.rollout import Trajectories
from fedkl.learning.statistics import Moments
from fedkl.simulators.actors import Mind
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import Episode


def minds(
    task: Task,
    policies: Policy,
    observations: Moments | None,
    iterations: Int[Array, " n"],
    seeds: Sequence[Seed],
    deterministic: bool = False,
) -> list[Mind]:
    """How clients act: by their policies, on standardised observations.

    Args:
        task: world, algorithm and settings.
        policies: what they act with, stacked.
        observations: the statistics they see with, stacked; None sees as it is.
        iterations: local iterations that each has finished.
        seeds: of the noise on their actions.
        deterministic: the mean, without any noise.
    """
    learner = task.learner
    clip = math.inf if observations is None else float(learner.observation_clip)
    stacked = jax.device_get(_arrays(policies, observations))
    result = []
    for n, (seed, done) in enumerate(zip(seeds, np.asarray(iterations), strict=True)):
        weights, biases, deviation, centre, scale = jax.tree.map(lambda x, n=n: x[n], stacked)
        explores = not deterministic and done == 0
        result.append(
            Mind(
                weights=weights,
                biases=biases,
                deviation=np.zeros_like(deviation) if deterministic else deviation,
                centre=centre,
                scale=scale,
                clip=clip,
                exploration=learner.uniform_exploration if explores else 0.0,
                seed=seed,
            )
        )
    return result


@jax.jit
@jax.vmap
def _arrays(policy: Policy, observations: Moments | None) -> PyTree:
    assert policy.log_std is not None
    network = policy.network
    size = network.weights[0].shape[:1]
    centre = jnp.zeros(size) if observations is None else observations.mean
    scale = jnp.ones(size) if observations is None else statistics.deviation(observations)
    return network.weights, network.biases, jnp.exp(policy.log_std), centre, scale


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


def seeds_of(keys: PRNGKeyArray) -> list[Seed]:
    """The seeds that JAX keys stand for on the host."""
    words = np.asarray(jax.random.key_data(keys)).reshape(keys.size, -1)
    return [Seed(tuple(int(word) for word in row)) for row in words]
