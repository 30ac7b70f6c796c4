"""QAvg and PAvg (Jin et al., 2022): local training without a penalty, then averaging."""

from __future__ import annotations

import numpy as np

from fedkl.tabular.algorithms import Algorithm, Round
from fedkl.tabular.distances import differ
from fedkl.tabular.exact import Exact
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray


def qavg(local_steps: int = 1, step_size: float = 1.0) -> Algorithm:
    """QAvg: agents iterate Q-values by themselves, the server averages them; the policy is greedy.

    With one local step of size 1 this is value iteration on the averaged MDP. It starts from Q = 0,
    whatever the policy is.

    Args:
        local_steps: E, the iterations of an agent in a round.
        step_size: the share of the new value in each.
    """

    def run(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
        family = at.family
        start = np.zeros(at.action_value.shape) if memory is None else memory[..., None, :, :]
        Q = np.broadcast_to(start, at.action_value.shape)
        for _ in range(local_steps):
            ahead = np.einsum("...nsat,...nt->...nsa", family.transitions, Q.max(axis=-1))
            target = family.rewards + family.gamma[..., None, None, None] * ahead
            Q = (1 - step_size) * Q + step_size * target
        averaged = np.einsum("...n,...nsa->...sa", weights, Q)
        policy = np.eye(family.actions)[averaged.argmax(axis=-1)]
        moved = np.repeat(differ(policy, at.policy)[..., None], family.agents, axis=-1)
        return Round(policy, None, moved, averaged)

    return run


def pavg(local_steps: int = 20, step_size: float = 0.1) -> Algorithm:
    """PAvg: agents follow their own exact policy gradient, projected; the server averages policies.

    Args:
        local_steps: E, the gradient steps of an agent in a round.
        step_size: of each of them.
    """

    def run(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
        alone = at.family.alone()
        local = np.broadcast_to(at.policy[..., None, :, :], at.advantage.shape)
        for _ in range(local_steps):
            gradient = Exact(alone, local).weighted_advantage[..., 0, :, :]
            local = project(local + step_size * gradient)
        moved = differ(local, at.policy[..., None, :, :])
        return Round(Step(at, local).averaged(weights), None, moved)

    return run


def project(x: FloatArray) -> FloatArray:
    """The nearest distribution to each vector along the last axis, in the Euclidean distance.

    Example:
        >>> project(np.array([0.8, 0.6])).round(6).tolist()
        [0.6, 0.4]
    """
    # The same vector added to all entries changes nothing, and large ones would drown the 1.
    x = x - x.max(axis=-1, keepdims=True)
    falling = -np.sort(-x, axis=-1)
    excess = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, x.shape[-1] + 1)
    # The largest prefix that stays positive is where falling > excess; its excess is taken off all.
    last = (falling > excess).sum(axis=-1, keepdims=True) - 1
    return np.maximum(x - np.take_along_axis(excess, last, axis=-1), 0.0)
