"""The paper's quantities at one policy, solved for instead of sampled."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedkl.tabular.distances import frobenius, inner, span
from fedkl.tabular.family import Family, check_policy
from fedkl.tabular.validation import FloatArray, InvalidFamily, place


class Exact:
    """All exact quantities of a family at one policy pi; each is computed once, when asked for.

    Args:
        family: the MDPs, with batch axes or without.
        policy: pi(a | s), [..., S, A]; its batch axes and those of the family broadcast.

    Example:
        >>> from fedkl.tabular import families
        >>> family = families.random(agents=3, states=4, actions=2, gamma=0.9, seed=0)
        >>> at = Exact(family, family.uniform_policy())
        >>> [round(float(mass), 6) for mass in at.visitation.sum(axis=-1)]
        [10.0, 10.0, 10.0]
    """

    def __init__(self, family: Family, policy: ArrayLike) -> None:
        self.family = family
        self.policy = check_policy(family, policy)
        try:
            np.broadcast_shapes(family.batch, self.policy.shape[:-2])
        except ValueError as error:
            raise InvalidFamily(
                f"policies of the batch {self.policy.shape[:-2]} do not fit families of the batch "
                f"{family.batch}"
            ) from error

    @cached_property
    def _one_minus_gamma_p(self) -> FloatArray:
        """I - gamma P_pi, [..., N, S, S]."""
        moves = np.einsum("...sa,...nsat->...nst", self.policy, self.family.transitions)
        return np.eye(self.family.states) - self.family.gamma[..., None, None, None] * moves

    @cached_property
    def visitation(self) -> FloatArray:
        """rho_n(s), the discounted visitation (eq. 8), of mass 1/(1-gamma). [..., N, S]"""
        transposed = self._one_minus_gamma_p.swapaxes(-1, -2)
        return _solve(transposed, np.broadcast_to(self.family.initial, transposed.shape[:-1]))

    @cached_property
    def federation_visitation(self) -> FloatArray:
        """rho_bar(s) = sum_k q_k rho_k(s): where the federation is, over all agents. [..., S]"""
        return np.einsum("...n,...ns->...s", self.family.weights, self.visitation)

    @cached_property
    def excess_visitation(self) -> FloatArray:
        """[rho_bar - rho_n]_+(s): what the federation visits more than agent n, [..., N, S].

        That is w_n rho_bar with the weight w_n = max(0, 1 - rho_n / rho_bar).
        """
        return np.maximum(self.federation_visitation[..., None, :] - self.visitation, 0.0)

    @cached_property
    def value(self) -> FloatArray:
        """V_n(s), [..., N, S]."""
        rewards = np.einsum("...sa,...nsa->...ns", self.policy, self.family.rewards)
        return _solve(self._one_minus_gamma_p, rewards)

    @cached_property
    def action_value(self) -> FloatArray:
        """Q_n(s, a), [..., N, S, A]."""
        return self.family.rewards + self.family.gamma[..., None, None, None] * np.einsum(
            "...nsat,...nt->...nsa", self.family.transitions, self.value
        )

    @cached_property
    def advantage(self) -> FloatArray:
        """A_n(s, a) = Q_n - V_n, [..., N, S, A]."""
        return self.action_value - self.value[..., None]

    @cached_property
    def agent_returns(self) -> FloatArray:
        """eta_n (eq. 2), [..., N]."""
        return (self.family.initial * self.value).sum(axis=-1)

    @cached_property
    def expected_return(self) -> FloatArray:
        """The global objective eta = sum_n q_n eta_n (eq. 3), [...]."""
        return (self.family.weights * self.agent_returns).sum(axis=-1)

    @cached_property
    def rounding(self) -> FloatArray:
        """A generous bound on the rounding error of returns, [...]."""
        size = abs(self.value).max(axis=(-2, -1)) + abs(self.family.rewards).max(axis=(-3, -2, -1))
        return 1e-12 * size / (1 - self.family.gamma)

    @cached_property
    def weighted_advantage(self) -> FloatArray:
        """D_n A_n: what agent n's policy advantage is linear in (eq. 16). [..., N, S, A]"""
        return self.visitation[..., None] * self.advantage

    @cached_property
    def global_advantage(self) -> FloatArray:
        """M = sum_k q_k D_k A_k: the gradient of eta, up to a constant in a state. [..., S, A]"""
        return np.einsum("...n,...nsa->...sa", self.family.weights, self.weighted_advantage)

    @cached_property
    def weighted_heterogeneity(self) -> FloatArray:
        """D_n B_n = M - D_n A_n, which exists where B_n does not. [..., N, S, A]"""
        return self.global_advantage[..., None, :, :] - self.weighted_advantage

    @cached_property
    def heterogeneity_matrix(self) -> FloatArray:
        """B_n (Definition 1), [..., N, S, A].

        Raises:
            ValueError: if some agent never visits some state, for then B_n divides by zero.
        """
        if (self.visitation <= 0).any():
            where = np.argwhere(self.visitation <= 0)[0]
            raise InvalidFamily(
                f"{place(where, ('agent', 'state'))}: the policy does not get there (rho = 0, or "
                "too small to tell), and the level of heterogeneity (Definition 1) needs rho > 0"
            )
        return self.weighted_heterogeneity / self.visitation[..., None]

    @cached_property
    def heterogeneity_level(self) -> FloatArray:
        """||B_n||_F (Definition 1), [..., N]."""
        return frobenius(self.heterogeneity_matrix)

    @cached_property
    def learning_potential(self) -> FloatArray:
        """G_n = ||D_n A_n||_F - ||D_n B_n||_F, which the paper plots. [..., N]"""
        return frobenius(self.weighted_advantage) - frobenius(self.weighted_heterogeneity)

    @cached_property
    def alignment(self) -> FloatArray:
        """sum_k q_k E_{rho_k, pi}[A_k A_n]: the slope of eta along pi (1 + t A_n). [..., N]"""
        direction = self.policy[..., None, :, :] * self.advantage
        return inner(self.global_advantage[..., None, :, :], direction)

    @cached_property
    def largest_advantage(self) -> FloatArray:
        """epsilon_n = max |A_n|, [..., N]."""
        return abs(self.advantage).max(axis=(-2, -1))

    @cached_property
    def advantage_span(self) -> FloatArray:
        """span_a A_n(s), [..., N, S]."""
        return span(self.advantage)


def _solve(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(matrix, vector[..., None])[..., 0], dtype=np.float64)
