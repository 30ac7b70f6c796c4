"""Episodes on the host: a simulator in worker processes, which JAX cannot step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray, PyTree, Shaped

from fedkl.arrays import Array
from fedkl.clients.acting import Behaviour, actors, seeds_of
from fedkl.clients.sources.base import Recording
from fedkl.errors import UserError
from fedkl.learning.trajectories import Trajectories
from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import Columns, Job
from fedkl.simulators.pool import Workers

COLUMNS_IN_A_JOB = (8, 16)
"""As many as make a job for each core, within these limits. A call of the policy costs little more
for eight observations than for one, and for sixteen than for eight; more of them would save less,
and leave fewer jobs to share. What comes of a column does not depend on it."""


class Hosted:
    """One client's own simulator: its row of params, and the processes that simulate it."""

    def __init__(
        self, workers: Workers, params: PyTree, horizon: int, truncates: bool = False
    ) -> None:
        """Args:
        workers: the processes, which clients take turns with.
        params: the client's row of the world's params.
        horizon: steps in an episode.
        truncates: whether the simulator may cut episodes off by itself.
        """
        self._workers = workers
        self._params = jax.device_get(params)
        self._horizon = horizon
        self._truncates = truncates

    def collect(self, behaviour: Behaviour, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Runs `episodes` episodes, some in each process."""
        return self._run(self._jobs(behaviour, [self._horizon] * episodes, key))

    def fill(self, behaviour: Behaviour, steps: int, key: PRNGKeyArray) -> Trajectories:
        """Runs exactly `steps` steps: columns in which one episode follows the other."""
        jobs = self._jobs(behaviour, lengths_for(steps, self._horizon), key)
        return self._run([job._replace(refill=True) for job in jobs])

    def record(self, behaviour: Behaviour, key: PRNGKeyArray) -> Recording:
        """One episode with what pictures are drawn from."""
        (job,) = self._jobs(behaviour, [self._horizon], key)
        (episode,) = self._workers.run([job._replace(pictures=True)])
        return recording(episode, 0, job.params)

    def _jobs(self, behaviour: Behaviour, lengths: Sequence[int], key: PRNGKeyArray) -> list[Job]:
        stacked, words = _plan(behaviour, key)
        (seed,) = seeds_of(words)
        seeds = [seed.fold(column) for column in range(len(lengths))]
        (actor,) = actors(stacked, [[s.fold(1) for s in seeds]])
        return [
            Job(
                seeds=tuple(seeds[column] for column in part),
                actors=[actor._replace(seeds=tuple(actor.seeds[column] for column in part))],
                lengths=tuple(lengths[column] for column in part),
                params=params,
            )
            for part, params in self._parts(len(seeds), seed)
        ]

    def _parts(self, columns: int, seed: Seed) -> list[tuple[Int[np.ndarray, " c"], PyTree]]:
        """The columns of each job, and the params of their world."""
        most, fewest = (-(-columns // number) for number in COLUMNS_IN_A_JOB)
        jobs = min(most, max(fewest, self._workers.number))
        return [(part, self._params) for part in np.array_split(np.arange(columns), jobs)]

    def _run(self, jobs: list[Job]) -> Trajectories:
        done = self._workers.run(jobs)
        found = trajectories(done, [0], self._horizon, self._truncates)
        return jax.tree.map(lambda x: x[0], found)


def lengths_for(steps: int, horizon: int) -> list[int]:
    """The lengths of the columns that hold exactly `steps` steps: all but the last are full.

    Example:
        >>> lengths_for(250, 100)
        [100, 100, 50]
    """
    full, rest = divmod(steps, horizon)
    return [horizon] * full + [rest] * (rest > 0)


def trajectories(
    parts: Sequence[Columns], agents: Sequence[int], rows: int, truncates: bool
) -> Trajectories:
    """What some agents saw, did and were rewarded with, stacked by agent.

    Args:
        parts: what came of the jobs.
        agents: which of them.
        rows: how long the columns are to be; what is added counts for nothing.
        truncates: whether the world's simulator may cut episodes off by itself. What JAX compiles
            depends on it, so it is a property of the world and not of the data.

    Raises:
        UserError: the simulator did what the world says that it does not.
    """

    def joined(arrays: Sequence[Shaped[np.ndarray, "_ n _ *f"]]) -> Any:
        """Axes: agent, row, column."""
        padded = [_padded(x[:, agents], rows) for x in arrays]
        return np.moveaxis(padded[0] if len(padded) == 1 else np.concatenate(padded, 2), 1, 0)

    def each(name: str) -> Any:
        return joined([getattr(part, name) for part in parts])

    if not truncates and any(part.truncated.any() for part in parts):
        raise UserError(
            "the simulator cut an episode off by itself (`truncated`); its world must say that "
            "this may happen: `truncates = True`"
        )
    after = [np.zeros_like(p.observation) if p.after is None else p.after for p in parts]
    last: Any = np.concatenate([part.last_observation[agents] for part in parts], axis=1)
    return Trajectories(
        observation=each("observation"),
        action=each("action"),
        reward=each("reward"),
        terminated=each("terminated"),
        mask=each("mask"),
        last_observation=last,
        truncated=each("truncated") if truncates else None,
        after=joined(after) if truncates else None,
    )


def recording(episode: Columns, agent: int, params: PyTree) -> Recording:
    """An episode to look at, with the rewards of one agent."""
    return Recording(
        episode.pictures, episode.reward[:, agent, 0], episode.mask[:, agent, 0], params
    )


def _padded(x: Shaped[np.ndarray, "_ n c *f"], rows: int) -> Shaped[np.ndarray, "h n c *f"]:
    if len(x) == rows:
        return x
    return np.pad(x, [(0, rows - len(x))] + [(0, 0)] * (x.ndim - 1))


@jax.jit
def _plan(behaviour: Behaviour, key: PRNGKeyArray) -> tuple[Actor, Array]:
    """The actor, as a stack of one, and the words of the key: in one call, which is cheaper."""
    return jax.tree.map(lambda x: x[None], behaviour.actor()), jax.random.key_data(key)
