"""Whole episodes in a simulator: every agent acts with a mind of its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fedkl.simulators.actors import Actors, Mind
from fedkl.simulators.base import Seed, Simulator


class Job(NamedTuple):
    """An episode to be run. Whoever runs it, and however often, it comes out the same."""

    seed: Seed
    minds: list[Mind]
    steps: int
    pictures: bool = False
    """Whether to keep what pictures are drawn from."""


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
    actors = Actors(job.minds, job.steps)
    seen = simulator.reset(job.seed)
    agents, size = seen.shape
    observation = np.zeros((job.steps, agents, size), np.float32)
    action = np.zeros((job.steps, agents, job.minds[0].deviation.shape[0]), np.float32)
    reward = np.zeros((job.steps, agents), np.float32)
    pictures = [simulator.picture()] if job.pictures else None
    length, ended = 0, False
    while length < job.steps and not ended:
        observation[length] = seen
        action[length] = act = actors(seen, length)
        seen, reward[length], ended = simulator.step(act)
        length += 1
        if pictures is not None:
            pictures.append(simulator.picture())
    steps = np.arange(job.steps)
    return Episode(
        observation=observation,
        action=action,
        reward=reward,
        terminated=(steps == length - 1) & ended,
        mask=steps < length,
        last_observation=seen,
        pictures=None if pictures is None else np.stack(pictures),
    )
