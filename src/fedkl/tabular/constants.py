"""The constants of the paper's bounds and of ours, at one policy."""

from __future__ import annotations

import numpy as np

from fedkl.tabular.distances import span, total_variation
from fedkl.tabular.exact import Exact
from fedkl.tabular.validation import FloatArray, InvalidFamily, place


def alpha(at: Exact) -> FloatArray:
    """alpha_n = 2 ||B_n||_F (Theorem 1), [..., N]."""
    return 2 * at.heterogeneity_level


def paper_constant(at: Exact) -> FloatArray:
    """c_k = 4 eps_k gamma / (1-gamma)^2, the constant of TRPO's bound, [..., N]."""
    gamma = _gamma(at)
    return 4 * at.largest_advantage * gamma / (1 - gamma) ** 2


def corrected_constant(at: Exact) -> FloatArray:
    """c_k = 2 eps_k gamma / (1-gamma), the corrected constant of CPO with eps' <= eps, [..., N]."""
    gamma = _gamma(at)
    return 2 * at.largest_advantage * gamma / (1 - gamma)


def beta(at: Exact, constant: FloatArray) -> FloatArray:
    """beta = sum_k q_k c_k (Corollary 2), [...], for the constants c_k."""
    return (at.family.weights * constant).sum(axis=-1)


def delta(at: Exact, constant: FloatArray) -> FloatArray:
    """delta_n = 2 sum_k q_k c_k TV(rho_k, rho_n) (Corollary 2), [..., N], for the constants c_k."""
    rho = at.visitation
    distance = total_variation(rho[..., None, :, :], rho[..., :, None, :])  # [..., n, k]
    return 2 * ((at.family.weights * constant)[..., None, :] * distance).sum(axis=-1)


def anchored_alpha(at: Exact) -> FloatArray:
    """max_s span_a (D_n B_n)(s) / rho_bar(s): heterogeneity for each visit of any agent. [..., N]

    Unlike alpha it exists where agent n never is, and is at most max_k sigma_k + sigma_n / q_n.

    Raises:
        ValueError: if an agent of weight 0 visits a state that no agent with a weight does.
    """
    heterogeneity = span(at.weighted_heterogeneity)
    visits = np.broadcast_to(at.federation_visitation[..., None, :], heterogeneity.shape)
    missed = (visits <= 0) & (heterogeneity > at.rounding[..., None, None])
    if missed.any():
        raise InvalidFamily(
            f"{place(np.argwhere(missed)[0], ('agent', 'state'))}: no agent with a weight gets "
            "there, so no multiple of the federation's visitation covers what this one does there"
        )
    each = np.divide(heterogeneity, visits, out=np.zeros_like(visits), where=visits > 0)
    return np.asarray(each.max(axis=-1))


def weighted_alpha(at: Exact) -> FloatArray:
    """max_s span_a (D_n B_n)(s) / max(rho_n, rho_bar)(s), [..., N].

    At most max_k sigma_k + sigma_n, for every agent, also one that counts for little or nothing.
    """
    heterogeneity = span(at.weighted_heterogeneity)
    visits = at.visitation + at.excess_visitation
    each = np.divide(heterogeneity, visits, out=np.zeros_like(visits), where=visits > 0)
    return np.asarray(each.max(axis=-1))


def anchored_beta(at: Exact) -> FloatArray:
    """max_k 2 eps_k gamma / (1-gamma) over the agents with a weight, [...]."""
    return np.where(at.family.weights > 0, corrected_constant(at), 0.0).max(axis=-1)


def curvature(at: Exact) -> FloatArray:
    """C = sum_k q_k C_k, [...]."""
    return (at.family.weights * agent_curvature(at)).sum(axis=-1)


def agent_curvature(at: Exact) -> FloatArray:
    """C_k = 2 gamma sigma_k / (1-gamma)^2, sigma_k = max_s span_a A_k(s), [..., N]."""
    gamma = _gamma(at)
    return 2 * gamma * at.advantage_span.max(axis=-1) / (1 - gamma) ** 2


def _gamma(at: Exact) -> FloatArray:
    return at.family.gamma[..., None]
