"""Claims that what is defined at a policy is continuous in it: Lemmas 3 to 7, Corollary 3.

The paper gives no constants, so none is called tight or loose here: that a quantity changes by at
most so many times TV_max is how its continuity is checked.
"""

from __future__ import annotations

import numpy as np

from fedkl.tabular import continuity
from fedkl.tabular.bounds import Bound
from fedkl.tabular.claims.base import Claim, Finding, aligned
from fedkl.tabular.counterexamples import unvisited
from fedkl.tabular.distances import span
from fedkl.tabular.exact import Exact
from fedkl.tabular.sampling import Sample
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray

# A policy is as far off as this by rounding alone, and what depends on it with it.
_ROUNDING = 1e-12


def _visitation(sample: Sample) -> Finding:
    gamma = sample.at.family.gamma
    return _changes_at_most(continuity.visitation(sample.step), _ROUNDING / (1 - gamma) ** 2)


def _action_value(sample: Sample) -> Finding:
    return _changes_at_most(continuity.action_value(sample.step), sample.rounding)


def _value_advantage_return(sample: Sample) -> Finding:
    step = sample.step
    each = [continuity.value(step), continuity.advantage(step), continuity.agent_returns(step)]
    left, surrogate, penalty = (
        np.stack([getattr(bound, name) for bound in each], axis=-1)
        for name in ("left", "surrogate", "penalty")
    )
    return _changes_at_most(Bound(left, surrogate, penalty), sample.rounding)


def _policy_advantage(sample: Sample) -> Finding:
    bound = continuity.policy_advantage(sample.step, _fixed(sample))
    return _changes_at_most(bound, _weighted(sample.at))


def _level(sample: Sample) -> Finding:
    return _changes_at_most(continuity.heterogeneity_level(sample.step), _of_level(sample))


def _objective(sample: Sample) -> Finding:
    bound = continuity.objective(sample.step, _fixed(sample))
    return _changes_at_most(bound, _of_objective(sample))


def _largest_objective(sample: Sample) -> Finding:
    return _changes_at_most(continuity.largest_objective(sample.step), _of_objective(sample))


def _weighted_heterogeneity(sample: Sample) -> Finding:
    at = Exact(unvisited(sample.at.family), sample.at.policy)
    bound = continuity.weighted_heterogeneity(Step(at, sample.step.local))
    return _changes_at_most(bound, _weighted(at))


def _span(sample: Sample) -> Finding:
    at = sample.at
    rewards = at.family.rewards.reshape(*at.family.rewards.shape[:-2], -1)
    largest = span(rewards) / (1 - at.family.gamma[..., None])
    violated = at.advantage_span.max(axis=-1) > largest + sample.rounding[..., None]
    return Finding(violated, np.ones(violated.shape, dtype=bool))


def _changes_at_most(bound: Bound, rounding: FloatArray) -> Finding:
    """The finding for a change that is at most the penalty, up to rounding [F, D, ...]."""
    off = aligned(rounding, bound.left) + _ROUNDING * bound.penalty
    violated = bound.slack < -off
    return Finding(violated, np.ones(violated.shape, dtype=bool))


def _fixed(sample: Sample) -> FloatArray:
    """A policy beside each pi_n that is another: the local policy of the agent before. [F, D, N]"""
    return np.roll(sample.step.local, 1, axis=-3)


def _weighted(at: Exact) -> FloatArray:
    """The largest rounding error of the sum of rho_n A_n over states, [F, D]."""
    return at.rounding / (1 - at.family.gamma)


def _of_level(sample: Sample) -> FloatArray:
    """The same over the least rho_n: how far ||B_n||_F may be off, [F, D, n, k]."""
    least = sample.step.after.visitation.min(axis=-1)
    return aligned(_weighted(sample.at), least) / least


def _of_objective(sample: Sample) -> FloatArray:
    """A bound on the rounding error of h_n, [F, D, n, k]."""
    level = _of_level(sample)
    gamma = aligned(sample.at.family.gamma, level)
    return (level + aligned(sample.rounding, level) * gamma / (1 - gamma) ** 2) / (1 - gamma)


CLAIMS = [
    Claim(
        "visitation-continuous",
        "Lemma 3",
        "rho_n is continuous in pi: in all it changes by at most 2 gamma/(1-gamma)^2 TV_max",
        "holds",
        _visitation,
    ),
    Claim(
        "action-value-lipschitz",
        "Lemma 4",
        "Q_n is Lipschitz in pi: it changes by at most gamma/(1-gamma) sigma_n TV_max",
        "holds",
        _action_value,
    ),
    Claim(
        "corollary-3",
        "Corollary 3",
        "V_n, A_n and eta_n are Lipschitz: by 1, 1+gamma and 1 times sigma_n/(1-gamma) TV_max",
        "holds",
        _value_advantage_return,
    ),
    Claim(
        "advantage-span",
        "ours",
        "sigma_n <= (span R_n)/(1-gamma), so these constants do for all pi",
        "holds",
        _span,
    ),
    Claim(
        "policy-advantage-continuous",
        "Lemma 5",
        "AA_n of a fixed policy is continuous: (1+3 gamma)/(1-gamma)^2 sigma_n TV_max",
        "holds",
        _policy_advantage,
    ),
    Claim(
        "level-continuous",
        "Lemma 6",
        "||B_n||_F is continuous where rho_n > 0: it changes by at most K_n TV_max",
        "holds",
        _level,
    ),
    Claim(
        "weighted-level-lipschitz",
        "ours",
        "D_n B_n is Lipschitz also where agent n never is",
        "holds",
        _weighted_heterogeneity,
    ),
    Claim(
        "objective-continuous",
        "Lemma 7",
        "h_n of a fixed policy is continuous in pi: it changes by at most H_n TV_max",
        "holds",
        _objective,
    ),
    Claim(
        "largest-objective-continuous",
        "Theorem 3's proof",
        "max h_n is continuous in pi too: it changes by at most H_n TV_max",
        "holds",
        _largest_objective,
    ),
]
