"""The best return we can find, and one that nothing can exceed.

If agents differ in mu alone or in R alone, the best policy is that of an MDP. Else max eta is no
MDP: one policy must serve all agents without knowing whose world it is in, may have to be
stochastic, and maxima may be local. So the optimum is searched for from many starts, and bounded
from above by letting every agent play its own best policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkl.tabular.algorithms import line_search
from fedkl.tabular.exact import Exact
from fedkl.tabular.families import averaged
from fedkl.tabular.family import Family
from fedkl.tabular.validation import FloatArray

_ROUNDS = 100
_NOTHING = 1e-7  # a rise, relative to the return, that ends the search


@dataclass(frozen=True)
class Optimum:
    """The best policy found, and a ceiling for max eta.

    Attributes:
        policy: the best policy found, [..., S, A].
        found: its return, [...].
        ceiling: sum_n q_n max eta_n, which no common policy exceeds, [...].
        rounding: how far returns may be off, [...].
    """

    policy: FloatArray
    found: FloatArray
    ceiling: FloatArray
    rounding: FloatArray

    def share(self, start: FloatArray, reached: FloatArray) -> FloatArray:
        """The share of the possible improvement over `start` that was reached; 1 if none is."""
        room = self.found - start
        possible = room > self.rounding
        return np.where(possible, (reached - start) / np.where(possible, room, 1.0), 1.0)


def search(family: Family, seed: int = 0, random_starts: int = 8) -> Optimum:
    """Search for max eta by line search from many starts, then by switching single actions.

    Starts: the uniform policy, every agent's own best policy, the best policy of the averaged MDP
    (these mixed with uniform, lest the search start in a corner), and random ones.

    Args:
        family: the MDPs, with batch axes or without.
        seed: of the random starts.
        random_starts: how many.
    """
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
    best = _best(family, _climbed(Exact(family[..., None], starts)))
    for _ in range(_ROUNDS):
        # Another action in one state may lead on where no small step does.
        switched = _climbed(_switched(best))
        higher = _rises(best, switched)
        if not higher.any():
            break
        policy = np.where(higher[..., None, None], switched.policy, best.policy)
        best = Exact(family, policy)
    alone = Exact(family.alone(), own).expected_return
    return Optimum(
        policy=best.policy,
        found=best.expected_return,
        ceiling=(family.weights * alone).sum(axis=-1),
        rounding=best.rounding,
    )


def _climbed(at: Exact) -> Exact:
    """Return the end of line search from every policy of a batch."""
    for _ in range(_ROUNDS):
        before, at = at, Exact(at.family, line_search(at, at.family.weights).policy)
        if not _rises(before, at).any():
            break
    return at


def _best(family: Family, at: Exact) -> Exact:
    """The best of several policies [..., K, S, A] for each family."""
    best = at.expected_return.argmax(axis=-1)[..., None, None, None]
    return Exact(family, np.take_along_axis(at.policy, best, axis=-3)[..., 0, :, :])


def _switched(at: Exact) -> Exact:
    """The best policy that takes one action for certain in one state, and is else the same."""
    S, A = at.policy.shape[-2:]
    best = at
    for state in range(S):
        options = np.repeat(at.policy[..., None, :, :], A, axis=-3)
        options[..., np.arange(A), state, :] = np.eye(A)
        switched = _best(at.family, Exact(at.family[..., None], options))
        higher = switched.expected_return > best.expected_return
        policy = np.where(higher[..., None, None], switched.policy, best.policy)
        best = Exact(at.family, policy)
    return best


def _rises(before: Exact, after: Exact) -> NDArray[np.bool_]:
    least = np.maximum(before.rounding, _NOTHING * abs(before.expected_return))
    return np.asarray(after.expected_return > before.expected_return + least)


def policy_iteration(family: Family) -> FloatArray:
    """An optimal deterministic policy of a batch of single MDPs, [..., S, A].

    Raises:
        ValueError: for a family of more than one agent.
    """
    if family.agents != 1:
        raise ValueError("policy iteration solves one MDP, not a family of several agents")
    policy = family.uniform_policy()
    while True:
        at = Exact(family, policy)
        advantage = at.advantage[..., 0, :, :]
        # An action must be better by more than rounding, or two equal ones would alternate.
        scale = at.rounding[..., None, None]
        current = (policy * advantage).sum(axis=-1, keepdims=True)
        better = advantage.max(axis=-1, keepdims=True) > current + scale
        stays = ~better & (policy.max(axis=-1, keepdims=True) == 1)
        if stays.all():
            return policy
        greedy = np.eye(family.actions)[advantage.argmax(axis=-1)]
        policy = np.where(stays, policy, greedy)
