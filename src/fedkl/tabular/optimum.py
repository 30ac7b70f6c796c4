"""The best return we can find, and one that nothing can exceed.

Without heterogeneity in P the best policy is that of an MDP. With it, max eta is no MDP: one policy
must serve all agents without knowing whose world it is in, and the maximum may be local. So the
optimum is searched for from many starts, and bounded from above by letting every agent play its own
best policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkl.tabular.algorithms import line_search
from fedkl.tabular.exact import Exact
from fedkl.tabular.families import averaged
from fedkl.tabular.family import Family, FloatArray

_ROUNDS = 100
_NOTHING = 1e-7  # a rise, relative to the return, that ends the search


@dataclass(frozen=True)
class Optimum:
    """What is known of max eta.

    Attributes:
        policy: the best policy found, [..., S, A].
        found: its return, [...].
        ceiling: sum_n q_n max eta_n, which no common policy exceeds, [...].
    """

    policy: FloatArray
    found: FloatArray
    ceiling: FloatArray

    def share(self, start: FloatArray, reached: FloatArray) -> FloatArray:
        """The share of the possible improvement over `start` that was reached; 1 if none is."""
        room = self.found - start
        possible = room > _NOTHING * (1 + abs(start))
        return np.where(possible, (reached - start) / np.where(possible, room, 1.0), 1.0)


def search(family: Family, seed: int = 0, random_starts: int = 8) -> Optimum:
    """Searches for max eta by line search from many starts.

    Starts: the uniform policy, every agent's own best policy, the best policy of the averaged MDP
    (these mixed with uniform, lest the search start in a corner), and random ones.

    Args:
        family: the MDPs, with batch axes or without.
        seed: of the random starts.
        random_starts: how many.
    """
    shape = (family.states, family.actions)
    own = policy_iteration(family.alone())
    of_average = policy_iteration(averaged(family))
    uniform = family.uniform_policy()
    draws = np.random.default_rng(seed).dirichlet(
        np.ones(family.actions), (*family.batch, random_starts, family.states)
    )
    greedy = np.concatenate([own, of_average[..., None, :, :]], axis=-3)
    starts = np.concatenate(
        [uniform[..., None, :, :], 0.9 * greedy + 0.1 * uniform[..., None, :, :], draws], axis=-3
    )
    at = Exact(family[..., None], starts)
    for _ in range(_ROUNDS):
        better = Exact(at.family, line_search(at, at.family.weights).policy)
        rise = (better.expected_return - at.expected_return).max()
        at = better
        if rise < _NOTHING * (1 + abs(at.expected_return).max()):
            break
    best = at.expected_return.argmax(axis=-1)
    policy = np.take_along_axis(at.policy, best[..., None, None, None], axis=-3)
    alone = Exact(family.alone(), own).expected_return
    return Optimum(
        policy=policy.reshape(*family.batch, *shape),
        found=at.expected_return.max(axis=-1),
        ceiling=(family.weights * alone).sum(axis=-1),
    )


def policy_iteration(family: Family) -> FloatArray:
    """An optimal deterministic policy of a batch of single MDPs, [..., S, A].

    Raises:
        ValueError: for a family of more than one agent.
    """
    if family.agents != 1:
        raise ValueError("policy iteration solves one MDP, not a family of several agents")
    policy = family.uniform_policy()
    while True:
        advantage = Exact(family, policy).advantage[..., 0, :, :]
        # An action must be better by more than rounding, or two equal ones would alternate.
        scale = 1e-10 * (1 + abs(advantage).max(axis=(-2, -1), keepdims=True))
        current = (policy * advantage).sum(axis=-1, keepdims=True)
        better = advantage.max(axis=-1, keepdims=True) > current + scale
        stays = ~better & (policy.max(axis=-1, keepdims=True) == 1)
        if stays.all():
            return policy
        greedy = np.eye(family.actions)[advantage.argmax(axis=-1)]
        policy = np.where(stays, policy, greedy)
