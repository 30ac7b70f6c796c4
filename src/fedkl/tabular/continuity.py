"""Continuity in the policy: Lemmas 3 to 7, with constants.

The paper says of each quantity that it is continuous. Here each has a number of which
docs/theory.md proves that the quantity changes by at most so many times TV_max. All are functions
of a `Step` and compare every agent k at every local policy pi_n with the same agent at pi: both
sides are of shape [..., n, k].
"""

from __future__ import annotations

import numpy as np

from fedkl.tabular import constants, objectives
from fedkl.tabular.best_response import best_response
from fedkl.tabular.bounds import Bound
from fedkl.tabular.distances import inner
from fedkl.tabular.exact import Exact
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray


def visitation(step: Step) -> Bound:
    """Lemma 3: |rho'_k - rho_k|_1 <= 2 gamma/(1-gamma)^2 TV_max."""
    before, after = _both(step)
    change = abs(after.visitation - before.visitation).sum(axis=-1)
    gamma = _gamma(before)
    return _bound(step, change, 2 * gamma / (1 - gamma) ** 2)


def action_value(step: Step) -> Bound:
    """Lemma 4: max |Q'_k - Q_k| <= gamma/(1-gamma) sigma_k TV_max."""
    before, after = _both(step)
    change = abs(after.action_value - before.action_value).max(axis=(-2, -1))
    return _bound(step, change, _gamma(before) * _of_value(before))


def value(step: Step) -> Bound:
    """Corollary 3: max |V'_k - V_k| <= sigma_k/(1-gamma) TV_max."""
    before, after = _both(step)
    return _bound(step, abs(after.value - before.value).max(axis=-1), _of_value(before))


def advantage(step: Step) -> Bound:
    """Corollary 3: max |A'_k - A_k| <= (1+gamma)/(1-gamma) sigma_k TV_max."""
    before, after = _both(step)
    change = abs(after.advantage - before.advantage).max(axis=(-2, -1))
    return _bound(step, change, (1 + _gamma(before)) * _of_value(before))


def agent_returns(step: Step) -> Bound:
    """Corollary 3: |eta'_k - eta_k| <= sigma_k/(1-gamma) TV_max."""
    before, after = _both(step)
    return _bound(step, abs(after.agent_returns - before.agent_returns), _of_value(before))


def policy_advantage(step: Step, fixed: FloatArray) -> Bound:
    """Lemma 5: the policy advantage of a fixed policy, (1+3gamma)/(1-gamma)^2 sigma_k TV_max.

    Args:
        step: from pi to pi_n, the policies over which there is an advantage.
        fixed: whose advantage it is, [..., N, S, A], one policy for each pi_n.
    """
    before, after = _both(step)
    candidate = fixed[..., :, None, :, :]
    at_pi, at_local = (inner(at.weighted_advantage, candidate) for at in (before, after))
    return _bound(step, abs(at_local - at_pi), _of_weighted_advantage(before))


def weighted_heterogeneity(step: Step) -> Bound:
    """Ours: sum_s max_a |(D_k B_k)' - D_k B_k|, which needs no rho > 0."""
    before, after = _both(step)
    change = abs(after.weighted_heterogeneity - before.weighted_heterogeneity)
    return _bound(step, change.max(axis=-1).sum(axis=-1), _of_weighted_heterogeneity(before))


def heterogeneity_level(step: Step) -> Bound:
    """Lemma 6: ||B_k||_F, whose constant grows without limit as some rho_k(s) goes to 0."""
    before, after = _both(step)
    change = abs(after.heterogeneity_level - before.heterogeneity_level)
    return _bound(step, change, _of_level(step))


def objective(step: Step, fixed: FloatArray) -> Bound:
    """Lemma 7: h_k of a fixed policy, as pi changes; the same number for every fixed policy.

    Args:
        step: from pi to pi_n, the policies at which h_k is made.
        fixed: what it is evaluated at, [..., N, S, A], one policy for each pi_n.
    """
    candidate = fixed[..., :, None, :, :]
    at_pi, at_local = (objectives.paper(at)(candidate) for at in _both(step))
    return _bound(step, abs(at_local - at_pi), _of_objective(step))


def largest_objective(step: Step) -> Bound:
    """The step from Lemma 7 to Theorem 3: max h_k changes no more than h_k does."""
    at_pi, at_local = (h(best_response(h)) for h in map(objectives.paper, _both(step)))
    return _bound(step, abs(at_local - at_pi), _of_objective(step))


def _both(step: Step) -> tuple[Exact, Exact]:
    """The exact quantities at pi, batch [..., 1], and at every pi_n, batch [..., N]."""
    return step.before_each, step.after


def _bound(step: Step, change: FloatArray, constant: FloatArray) -> Bound:
    none = np.zeros_like(change)
    return Bound(left=-change, surrogate=none, penalty=constant * step.tv_max[..., None] + none)


def _of_value(at: Exact) -> FloatArray:
    return at.advantage_span.max(axis=-1) / (1 - _gamma(at))


def _of_weighted_advantage(at: Exact) -> FloatArray:
    """Of D_k A_k, in sum_s max_a |.|."""
    gamma = _gamma(at)
    return (1 + 3 * gamma) / (1 - gamma) * _of_value(at)


def _of_weighted_heterogeneity(at: Exact) -> FloatArray:
    each = _of_weighted_advantage(at)
    return each + (at.family.weights * each).sum(axis=-1, keepdims=True)


def _of_level(step: Step) -> FloatArray:
    at, gamma = step.before_each, _gamma(step.before_each)
    largest = abs(at.heterogeneity_matrix).max(axis=(-2, -1))
    rows = _of_weighted_heterogeneity(at) + 2 * gamma / (1 - gamma) ** 2 * largest
    return np.sqrt(at.family.actions) * rows / step.after.visitation.min(axis=-1)


def _of_objective(step: Step) -> FloatArray:
    at, gamma = step.before_each, _gamma(step.before_each)
    constant = constants.paper_constant(at)
    mean = (at.family.weights * _of_value(at)).sum(axis=-1, keepdims=True)
    of_alpha = 2 * _of_level(step)
    of_beta = 4 * gamma / (1 - gamma) ** 2 * (1 + gamma) * mean
    of_delta = 8 * gamma / (1 - gamma) ** 3 * (1 + 3 * gamma) * mean
    per_tv = constants.alpha(at) + constants.beta(at, constant)[..., None]
    return (
        _of_weighted_advantage(at)
        + per_tv / (1 - gamma) ** 2
        + (of_alpha + of_beta) / (1 - gamma)
        + constants.delta(at, constant)
        + of_delta
    )


def _gamma(at: Exact) -> FloatArray:
    return at.family.gamma[..., None]
