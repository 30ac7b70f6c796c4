"""Whole episodes in a simulator: every agent acts with a policy of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fedkl.simulators.actors import Actor, Actors
from fedkl.simulators.base import Seed, Simulator


class Job(NamedTuple):
    """An episode to be run. Whoever runs it, and however often, it comes out the same."""

    seed: Seed
    actors: list[Actor]
    """One for each agent."""
    steps: int
    pictures: bool = False
    """Whether to keep what pictures are drawn from."""
    params: Any = None
    """A client's row of the world's params, which `Simulator.reset` is given. It travels to the
    worker: arrays are NumPy's, and containers are of a module that does not import JAX."""


class Episode(NamedTuple):
    """What happened. Entries after the end are zero, and `mask` is false there."""

    observation: Float[np.ndarray, "h n o"]
    action: Float[np.ndarray, "h n a"]
    reward: Float[np.ndarray, "h n"]
    terminated: Bool[np.ndarray, " h"]
    mask: Bool[np.ndarray, " h"]
    last_observation: Float[np.ndarray, "n o"]
    pictures: Float[np.ndarray, "f p"] | None

    def returns(self) -> Float[np.ndarray, " n"]:
        """Each agent's undiscounted sum of rewards."""
        return self.reward.sum(axis=0, dtype=np.float64)


def run_episode(simulator: Simulator, job: Job) -> Episode:
    """Runs a job from its start to its last step or a true end."""
    if simulator.agents != len(job.actors):
        raise ValueError(f"{len(job.actors)} actors for {simulator.agents} agents")
    act = Actors(job.actors, job.steps)
    seen = simulator.reset(job.seed, job.params)
    # Lists, because a step is so short that writing into arrays would show.
    observations, actions, rewards = [seen], [], []
    pictures = [simulator.picture()] if job.pictures else None
    ended = False
    for step in range(job.steps):
        action = act(seen, step)
        seen, reward, ended = simulator.step(action)
        observations.append(seen)
        actions.append(action)
        rewards.append(reward)
        if pictures is not None:
            pictures.append(simulator.picture())
        if ended:
            break
    length, steps = len(rewards), np.arange(job.steps)
    shape = (len(job.actors), length)
    reward_of_each = np.broadcast_to(np.asarray(rewards, np.float32).T, shape).T
    return Episode(
        observation=_padded(_joined(observations[:-1]), job.steps),
        action=_padded(_joined(actions), job.steps),
        reward=_padded(reward_of_each, job.steps),
        terminated=(steps == length - 1) & ended,
        mask=steps < length,
        last_observation=seen,
        pictures=None if pictures is None else np.stack(pictures),
    )


def _joined(rows: list[Float[np.ndarray, "n f"]]) -> Float[np.ndarray, "l n f"]:
    """The same as `np.stack`, which is slow for many small arrays."""
    return np.concatenate(rows).reshape(len(rows), *rows[0].shape)


def _padded(x: Float[np.ndarray, "l n *f"], steps: int) -> Float[np.ndarray, "h n *f"]:
    """x, with zeros after its end."""
    result = np.zeros((steps, *x.shape[1:]), np.float32)
    result[: len(x)] = x
    return result
