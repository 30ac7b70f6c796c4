"""Families on which statements of the paper fail, small enough to follow by hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkl.tabular.family import Family
from fedkl.tabular.validation import FloatArray


def corollary_1() -> Family:
    """Two agents in the same world, the second with rewards five times as large.

    B_1 = 2 A_1, so ||B_1||_F < ||A_1||_F fails; yet what is good for agent 1 is good for both.
    """
    transitions = np.broadcast_to(
        [[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]]], (2, 2, 2, 2)
    )
    rewards = np.array([[0.0, 1.0], [1.0, 0.0]])
    return Family(
        initial=np.full((2, 2), 0.5),
        transitions=transitions,
        rewards=np.stack([rewards, 5 * rewards]),
        gamma=0.9,
    )


def bandit(gamma: float) -> Family:
    """One agent, one state, rewards 1 and -1: Algorithm 1 moves at 0.2679 and not at 0.268."""
    return Family([[1.0]], np.ones((1, 1, 2, 1)), [[[1.0, -1.0]]], gamma)


def stuck() -> Family:
    """Two bandits of four actions, rewards m + e and m - e: agreed on m, opposed in the larger e.

    With m = (1, 1, -1, -1) / 10 and e = (1, -1, 0, 0), eta rises with m, but what each agent gains
    is no more than the price of its heterogeneity: second-order FedKL stays, whatever gamma is.
    """
    common, opposed = np.array([0.1, 0.1, -0.1, -0.1]), np.array([1.0, -1.0, 0.0, 0.0])
    rewards = np.stack([common + opposed, common - opposed])[:, None, :]
    return Family(np.ones((2, 1)), np.ones((2, 1, 4, 1)), rewards, gamma=0.9)


def own_states() -> Family:
    """Two agents that stay where they start: the first in state 1 or seldom 2, the second in 2.

    In state 2 they want opposite actions, and the second is there four times as often. What the
    first gains in a visit there (2) is more than what it gains in a visit of state 1 (1), where
    its step would harm no agent: whatever it pays for divergence in its own states, the harmful
    step is the last that it gives up. Charged in the states of the federation, it is the first.
    """
    stay = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    first = [[0.5, -0.5], [1.0, -1.0]]
    second = [[0.5, -0.5], [-0.75, 0.75]]
    return Family([[0.75, 0.25], [0.0, 1.0]], stay, [first, second], gamma=0.5)


def opposed() -> Family:
    """Two agents in one state, of which the second loses twice what the first gains.

    Nobody is more often anywhere than anybody else, so a divergence that is weighted by that is 0,
    and no multiple of it holds back the first.
    """
    rewards = [[[1.0, -1.0]], [[-2.0, 2.0]]]
    return Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, gamma=0.5)


def unbounded_level() -> Family:
    """Two agents, of which the first gets to state 2 only by the second action of state 1.

    Both start in state 1, the second as often in state 2, which is never left and where it alone is
    rewarded, by 1 and -1. The less often the second action is taken, with probability p, the larger
    ||B_1||_F is: sqrt(2) (1 + 2p) / 4p. Where it never is taken B_1 does not exist; D_1 B_1 does.
    """
    stay_or_go = np.broadcast_to([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]], (2, 2, 2, 2))
    rewards = np.zeros((2, 2, 2))
    rewards[1, 1] = [1.0, -1.0]
    return Family([[1.0, 0.0], [0.5, 0.5]], stay_or_go, rewards, gamma=0.5)


def unvisited(family: Family) -> Family:
    """Agent n never visits state n mod |S|: what led it there leads it to the next state instead.

    All agents have the same weight, so the visits of each count. One state is always visited.
    """
    states = np.arange(family.states)
    avoids = states == avoided_state(family)[:, None]  # [N, S]
    to = np.eye(family.states)[np.where(avoids, (states + 1) % family.states, states)]

    def change(name: str, array: FloatArray) -> FloatArray:
        if name == "initial":
            return np.einsum("...ns,nst->...nt", array, to)
        if name == "transitions":
            return np.einsum("...nsau,nut->...nsat", array, to)
        return np.full_like(array, 1 / family.agents) if name == "weights" else array

    return family.changed(change)


def avoided_state(family: Family) -> NDArray[np.intp]:
    """The state that agent n never visits in `unvisited`, [N]."""
    return np.arange(family.agents) % family.states


def identical(family: Family) -> Family:
    """The family in which every agent is like the first."""
    return _like_the_first(family, {"initial": -2, "transitions": -4, "rewards": -3})


def same_visits(family: Family) -> Family:
    """The family in which every agent starts and moves like the first, for rewards of its own."""
    return _like_the_first(family, {"initial": -2, "transitions": -4})


def _like_the_first(family: Family, axes: dict[str, int]) -> Family:
    """Give every agent the first's arrays, where they are named with the axis of agents."""

    def change(name: str, array: FloatArray) -> FloatArray:
        if name not in axes:
            return array
        return np.broadcast_to(np.take(array, [0], axis=axes[name]), array.shape)

    return family.changed(change)


def shaped(family: Family) -> Family:
    """Make agents identical but for a potential in their rewards, which changes no advantage.

    R_n = R_0 + gamma P Phi_n - Phi_n: the agents differ, and ||B_n||_F = 0 all the same.
    """
    same = identical(family)
    states = np.arange(1, family.states + 1) / family.states
    potential = np.arange(family.agents)[:, None] * states  # Phi_n(s), [N, S]
    ahead = np.einsum("...nsat,nt->...nsa", same.transitions, potential)
    rewards = same.rewards + same.gamma[..., None, None, None] * ahead - potential[..., None]
    return same.changed(lambda name, array: rewards if name == "rewards" else array)


def without_rewards(family: Family) -> Family:
    """The family in which nothing is rewarded: every policy maximises every local objective."""
    return family.changed(lambda name, array: array * 0 if name == "rewards" else array)
