"""A step from the global policy to the agents' local policies, and what it exactly brings."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedkl.tabular.distances import inner, kl_divergence, total_variation
from fedkl.tabular.exact import Exact
from fedkl.tabular.family import check_policy, check_weights
from fedkl.tabular.validation import FloatArray, InvalidFamily


class Step:
    """The global policy pi and a local policy pi_n for each agent.

    Args:
        before: the exact quantities at pi.
        local: the local policies pi_n(a | s), [..., N, S, A]. One policy for all agents may be
            given as [S, A], or in a batch as [..., 1, S, A].
    """

    def __init__(self, before: Exact, local: ArrayLike) -> None:
        self.before = before
        axes = ("state",) if np.ndim(local) == 2 else ("agent", "state")
        given = check_policy(before.family, local, axes)
        agents = 1 if given.ndim == 2 else given.shape[-3]
        if agents not in (1, before.family.agents):
            raise InvalidFamily(
                f"local policies are needed for {before.family.agents} agents, not {agents}"
            )
        sizes = (before.family.agents, *given.shape[-2:])
        self.local = np.broadcast_to(given, np.broadcast_shapes(given.shape, sizes))

    @cached_property
    def change(self) -> FloatArray:
        """Pi_n - Pi, [..., N, S, A]."""
        return self.local - self.before.policy[..., None, :, :]

    @cached_property
    def tv(self) -> FloatArray:
        """TV(pi(. | s), pi_n(. | s)), [..., N, S]."""
        return total_variation(self.before.policy[..., None, :, :], self.local)

    @cached_property
    def tv_max(self) -> FloatArray:
        """The largest TV over states, [..., N]."""
        return self.tv.max(axis=-1)

    @cached_property
    def tv_expected(self) -> FloatArray:
        """E_{rho_n}[TV], [..., N]; rho_n has the mass 1/(1-gamma)."""
        return (self.before.visitation * self.tv).sum(axis=-1)

    @cached_property
    def kl(self) -> FloatArray:
        """D_KL(pi(. | s) || pi_n(. | s)), [..., N, S]."""
        return kl_divergence(self.before.policy[..., None, :, :], self.local)

    @cached_property
    def policy_advantage(self) -> FloatArray:
        """AA_n(pi_n) = trace(D_n A_n Pi_n^T), of each agent's own local policy (eq. 10). [..., N]

        Written with Pi_n - Pi, which changes nothing, since pi averages A_n to 0.
        """
        return inner(self.before.weighted_advantage, self.change)

    @cached_property
    def global_policy_advantage(self) -> FloatArray:
        """sum_k q_k AA_k(pi_n), of each local policy over all agents. [..., N]"""
        return inner(self.before.global_advantage[..., None, :, :], self.change)

    @cached_property
    def before_each(self) -> Exact:
        """The exact quantities at pi, with an axis beside that of the local policies in `after`."""
        return Exact(self.before.family[..., None], self.before.policy[..., None, :, :])

    @cached_property
    def after(self) -> Exact:
        """The exact quantities at every local policy, in every agent's MDP: batch [..., N]."""
        return Exact(self.before.family[..., None], self.local)

    @cached_property
    def own_return(self) -> FloatArray:
        """eta_n(pi_n): each local policy at home, [..., N]."""
        return np.einsum("...nn->...n", self.after.agent_returns)

    @cached_property
    def global_return(self) -> FloatArray:
        """eta(pi_n): each local policy everywhere, [..., N]."""
        return self.after.expected_return

    def averaged(self, weights: ArrayLike) -> FloatArray:
        """The server's aggregation sum_n w_n pi_n (Algorithm 1, line 8), [..., S, A].

        Args:
            weights: w_n, [..., N], non-negative with sum one; 0 for an agent that takes no part.
        """
        w = check_weights(self.before.family, weights)
        moved = self.before.policy + np.einsum("...n,...nsa->...sa", w, self.change)
        # Written so, policies that did not move average to exactly pi; rounding may go below 0.
        return np.maximum(moved, 0.0)
