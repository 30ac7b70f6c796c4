"""Episodes on the host: a simulator in worker processes, which JAX cannot step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from fedkl.clients.acting import Behaviour, actors, seeds_of
from fedkl.clients.sources.base import Recording
from fedkl.learning.trajectories import Trajectories
from fedkl.simulators.actors import Actor
from fedkl.simulators.episodes import Episode, Job
from fedkl.simulators.pool import Workers


class Hosted:
    """One client's own simulator: its row of params, and the processes that simulate it."""

    def __init__(self, workers: Workers, params: PyTree, horizon: int) -> None:
        """Args:
        workers: the processes, which clients take turns with.
        params: the client's row of the world's params.
        horizon: steps in an episode.
        """
        self._workers = workers
        self._params = jax.device_get(params)
        self._horizon = horizon

    def collect(self, behaviour: Behaviour, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Runs `episodes` episodes, as many at a time as there are processes."""
        finished = self._workers.run(self._jobs(behaviour, episodes, key))
        found: Trajectories = jax.tree.map(lambda x: x[0], trajectories(finished, [0]))
        return found

    def record(self, behaviour: Behaviour, key: PRNGKeyArray) -> Recording:
        """One episode with what pictures are drawn from."""
        (job,) = self._jobs(behaviour, 1, key)
        (episode,) = self._workers.run([job._replace(pictures=True)])
        return recording(episode, 0, self._params)

    def _jobs(self, behaviour: Behaviour, episodes: int, key: PRNGKeyArray) -> list[Job]:
        (seed,) = seeds_of(jax.random.key_data(key))
        stacked = jax.tree.map(lambda x: x[None], jax.device_get(_actor(behaviour)))
        (actor,) = actors(stacked, [seed])
        seeds = [seed.fold(e) for e in range(episodes)]
        return [
            Job(s, [actor._replace(seed=s.fold(1))], self._horizon, params=self._params)
            for s in seeds
        ]


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


def recording(episode: Episode, agent: int, params: PyTree) -> Recording:
    """An episode to look at, with the rewards of one agent."""
    return Recording(episode.pictures, episode.reward[:, agent], episode.mask, params)


@jax.jit
def _actor(behaviour: Behaviour) -> Actor:
    return behaviour.actor()
