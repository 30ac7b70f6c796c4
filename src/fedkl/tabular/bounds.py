"""The inequalities of the paper, in its printed, corrected and tighter forms.

Each says that something is at least a surrogate less a penalty. All are functions of a `Step` and
return both sides, one number for each agent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedkl.tabular import objectives
from fedkl.tabular.constants import (
    alpha,
    anchored_alpha,
    anchored_beta,
    beta,
    delta,
    paper_constant,
)
from fedkl.tabular.distances import frobenius, inner, span
from fedkl.tabular.exact import Exact
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray


@dataclass(frozen=True)
class Bound:
    """An inequality left >= right, where right = surrogate - penalty.

    Attributes:
        left: what is bounded.
        surrogate: what it would be without the terms that the penalty stands for.
        penalty: what the bound takes off.
    """

    left: FloatArray
    surrogate: FloatArray
    penalty: FloatArray

    @property
    def right(self) -> FloatArray:
        """The bound."""
        return self.surrogate - self.penalty

    @property
    def slack(self) -> FloatArray:
        """left - right; negative where the inequality is violated."""
        return self.left - self.right

    @property
    def gap(self) -> FloatArray:
        """The least that a penalty must cover: surrogate - left."""
        return self.surrogate - self.left

    @property
    def looseness(self) -> FloatArray:
        """penalty / gap: 1 where the bound is attained, infinite where there is no gap."""
        covered = self.gap > 0
        return np.where(covered, self.penalty / np.where(covered, self.gap, 1.0), np.inf)


def trpo(step: Step) -> Bound:
    """The local improvement by KL (eq. 12): c max_s KL, c = 4 eps gamma / (1-gamma)^2."""
    return _local(step, _times(paper_constant(step.before), step.kl.max(axis=-1)))


def cpo_printed(step: Step) -> Bound:
    """The local improvement by TV as printed (eq. 13): 2 eps' gamma / (1-gamma)^2 E_rho[TV].

    eps' = max_s |E_{pi'} A_n|. Its constant is 1/(1-gamma) too large, since rho is not normalised.
    """
    return _local(step, cpo_corrected(step).penalty / (1 - _gamma(step.before)))


def cpo_corrected(step: Step) -> Bound:
    """The local improvement by TV: 2 eps' gamma / (1-gamma) E_rho[TV]."""
    gamma = _gamma(step.before)
    gains = (step.change * step.before.advantage).sum(axis=-1)  # E_{pi'} A_n in each state
    constant = 2 * abs(gains).max(axis=-1) * gamma / (1 - gamma)
    return _local(step, constant * step.tv_expected)


def second_order_local(step: Step) -> Bound:
    """Our lemma, of second order: (2 gamma / (1-gamma)) max_s[TV_s span_a A_n(s)] E_rho[TV]."""
    return _local(step, second_order_charge(step))


def theorem_1(step: Step) -> Bound:
    """Theorem 1 as printed: the penalty 2 ||B_n||_F E_{rho_n}[TV]."""
    return _advantage(step, alpha(step.before) * step.tv_expected)


def theorem_1_sqrt2(step: Step) -> Bound:
    """Theorem 1 with sqrt(2) ||B_n||_F E_{rho_n}[TV]."""
    return _advantage(step, alpha(step.before) / np.sqrt(2) * step.tv_expected)


def theorem_1_rows(step: Step) -> Bound:
    """Theorem 1 with the norm of each state: sqrt(2) sum_s ||(D_n B_n)(s, .)||_2 TV_s."""
    rows = np.sqrt((step.before.weighted_heterogeneity**2).sum(axis=-1))
    return _advantage(step, np.sqrt(2) * (rows * step.tv).sum(axis=-1))


def theorem_1_span(step: Step) -> Bound:
    """Theorem 1 with the span of each state, sum_s span_a (D_n B_n)(s) TV_s; needs no rho > 0."""
    return _advantage(step, (span(step.before.weighted_heterogeneity) * step.tv).sum(axis=-1))


def theorem_1_l2(step: Step) -> Bound:
    """Theorem 1 before its last step: ||B_n||_F ||D_n (Pi_n - Pi)||_F."""
    weighted = step.before.visitation[..., None] * step.change
    return _advantage(step, step.before.heterogeneity_level * frobenius(weighted))


def corollary_1(step: Step) -> Bound:
    """The inequality in the proof of Corollary 1: AA_n(pi_n) <= ||A_n||_F ||D_n (Pi_n - Pi)||_F.

    So where ||A_n||_F <= ||B_n||_F the right side of `theorem_1_l2` is not positive. That is a
    property of the bound; it does not keep the objective from improving.
    """
    weighted = step.before.visitation[..., None] * step.change
    ceiling = frobenius(step.before.advantage) * frobenius(weighted)
    zero = np.zeros_like(ceiling)
    return Bound(left=-step.policy_advantage, surrogate=zero, penalty=ceiling)


def corollary_2(step: Step) -> Bound:
    """Corollary 2 (eq. 21): eta(pi_n) >= eta + AA_n - (alpha+beta) E_{rho_n}[TV] - delta TV_max."""
    return _global(step, objectives.paper(step.before).penalty(step.local))


def corollary_2_corrected(step: Step) -> Bound:
    """Corollary 2 with what its proof needs: c_k = 2 eps_k gamma / (1-gamma), and half of delta."""
    return _global(step, objectives.corrected(step.before).penalty(step.local))


def equation_23(step: Step) -> Bound:
    """The paper's step to KL (eq. 23): h_n >= AA_n - (alpha+beta+delta) E_{rho_n}[sqrt(KL/2)].

    It does not hold: TV_max was replaced by an expectation.
    """
    at = step.before
    constant = paper_constant(at)
    total = alpha(at) + beta(at, constant)[..., None] + delta(at, constant)
    distance = (at.visitation * np.sqrt(step.kl / 2)).sum(axis=-1)
    h = objectives.paper(at)(step.local)
    return Bound(left=h, surrogate=step.policy_advantage, penalty=_times(total, distance))


def second_order(step: Step) -> Bound:
    """Ours: eta(pi_n) >= eta + AA_n - sum_s span_a (D_n B_n)(s) TV_s - C TV_max^2."""
    return _global(step, objectives.second_order(step.before).penalty(step.local))


def second_order_exact(step: Step) -> Bound:
    """Ours: eta(pi_n) >= eta + <M, Pi_n - Pi> - C TV_max^2."""
    at = step.before
    return Bound(
        left=step.global_return,
        surrogate=at.expected_return[..., None] + step.global_policy_advantage,
        penalty=objectives.second_order_exact(at).penalty(step.local),
    )


def anchored_theorem_1(step: Step) -> Bound:
    """Theorem 1 in the federation's states: a coefficient times E_{rho_bar}[TV]."""
    at = step.before
    distance = (at.federation_visitation[..., None, :] * step.tv).sum(axis=-1)
    return _advantage(step, anchored_alpha(at) * distance)


def anchored_corollary_2(step: Step) -> Bound:
    """Corollary 2 in the federation's states: a coefficient times E_{rho_bar}[TV], no TV_max."""
    return _global(step, objectives.anchored_corollary_2(step.before).penalty(step.local))


def anchored_equation_23(step: Step) -> Bound:
    """The same with E_{rho_bar}[sqrt(KL/2)], by Pinsker: what eq. 23 is after."""
    at = step.before
    coefficient = anchored_alpha(at) + anchored_beta(at)[..., None]
    visits = at.federation_visitation[..., None, :]
    distance = _times(visits, np.sqrt(step.kl / 2)).sum(axis=-1)
    return _global(step, _times(coefficient, distance))


def anchored(step: Step) -> Bound:
    """Ours: eta(pi_n) >= eta + AA_n - alpha_bar_n E_{rho_bar}[TV] - C TV_max^2."""
    return _global(step, objectives.anchored(step.before).penalty(step.local))


def weighted_delta(step: Step) -> Bound:
    """Corollary 2 with a weighted mean for its delta: (alpha_n + b) E[TV] + b E_bar[w TV]."""
    at = step.before
    b = anchored_beta(at)[..., None]
    penalty = (alpha(at) + b) * step.tv_expected + b * weighted_distance(step)
    return _global(step, penalty)


def weighted(step: Step) -> Bound:
    """Ours: eta(pi_n) >= eta + AA_n - g_n (E[TV] + E_bar[w TV]) - C TV_max^2."""
    return _global(step, objectives.weighted(step.before).penalty(step.local))


def weighted_distance(step: Step) -> FloatArray:
    """E_bar[w TV], the divergence where others are more often than the agent, [..., N]."""
    return np.asarray((step.before.excess_visitation * step.tv).sum(axis=-1))


def averaged(step: Step, weights: ArrayLike, of: Bound) -> Bound:
    """A federated bound carried over to the server's average: eta(sum_n w_n pi_n), [...].

    AA is linear, and TV, TV_max and TV_max^2 are convex in the policy, so every bound of the form
    of `corollary_2` and `second_order` holds for averages with the averaged right side (Theorem 2).

    Args:
        step: the local policies.
        weights: w_n, [..., N], of the server.
        of: what `corollary_2`, `second_order`, `second_order_exact` or `anchored` returned for
            the step.
    """
    left = Exact(step.before.family, step.averaged(weights)).expected_return
    w = np.asarray(weights, dtype=np.float64)
    return Bound(
        left=left,
        surrogate=(w * of.surrogate).sum(axis=-1),
        penalty=(w * of.penalty).sum(axis=-1),
    )


def second_order_charge(step: Step) -> FloatArray:
    """The charge of our lemma to agent n for its local policy, [..., N]."""
    gamma = _gamma(step.before)
    largest = (step.tv * step.before.advantage_span).max(axis=-1)
    return 2 * gamma / (1 - gamma) * largest * step.tv_expected


def printed_expansion(at: Exact) -> FloatArray:
    """The expansion of ||B_n||_F in the proof of Lemma 6, [..., N]."""
    rho, A = at.visitation, at.advantage
    ratio = rho[..., None, :, :] / rho[..., :, None, :]  # [..., n, k, S]
    difference = ratio[..., None] * A[..., None, :, :, :] - A[..., :, None, :, :]
    return (at.family.weights[..., None, :] * inner(difference, difference)).sum(axis=-1)


def _times(constant: FloatArray, divergence: FloatArray) -> FloatArray:
    """Their product; an infinite divergence that costs nothing is nothing."""
    none = np.zeros(np.broadcast_shapes(constant.shape, divergence.shape))
    return np.multiply(constant, divergence, out=none, where=constant > 0)


def _gamma(at: Exact) -> FloatArray:
    return at.family.gamma[..., None]


def _local(step: Step, penalty: FloatArray) -> Bound:
    """eta_n(pi_n) - eta_n >= AA_n(pi_n) - penalty."""
    rise = step.own_return - step.before.agent_returns
    return Bound(left=rise, surrogate=step.policy_advantage, penalty=penalty)


def _advantage(step: Step, penalty: FloatArray) -> Bound:
    """sum_k q_k AA_k(pi_n) >= AA_n(pi_n) - penalty."""
    return Bound(
        left=step.global_policy_advantage, surrogate=step.policy_advantage, penalty=penalty
    )


def _global(step: Step, penalty: FloatArray) -> Bound:
    """eta(pi_n) >= eta(pi) + AA_n(pi_n) - penalty."""
    return Bound(
        left=step.global_return,
        surrogate=step.before.expected_return[..., None] + step.policy_advantage,
        penalty=penalty,
    )
