"""Claims about divergence in the federation's states, and in an agent's own states alone."""

from __future__ import annotations

import numpy as np

from fedkl.tabular import bounds, objectives
from fedkl.tabular.claims.base import Claim, Finding, inequality, promised, promised_average
from fedkl.tabular.counterexamples import avoided_state, unvisited
from fedkl.tabular.exact import Exact
from fedkl.tabular.sampling import Sample
from fedkl.tabular.step import Step


def _corollary_2(sample: Sample) -> Finding:
    objective = objectives.anchored_corollary_2(sample.at)
    return promised(objective, bounds.anchored_corollary_2(sample.step), sample)


def _anchored(sample: Sample) -> Finding:
    return promised(objectives.anchored(sample.at), bounds.anchored(sample.step), sample)


def _average(sample: Sample) -> Finding:
    return promised_average(objectives.anchored(sample.at), bounds.anchored(sample.step), sample)


def _own_states(sample: Sample) -> Finding:
    step = _step_where_one_never_is(sample)
    at = step.before
    # Here c E_{rho_n}[TV] is 0 for every c, and only steps that cost nothing are looked at.
    applies = (step.tv_expected == 0) & (step.tv_max > 0)
    promised = at.expected_return[..., None] + step.policy_advantage
    return Finding(step.global_return < promised - at.rounding[..., None], applies)


def _unvisited(sample: Sample) -> Finding:
    step = _step_where_one_never_is(sample)
    bound = bounds.anchored_corollary_2(step)
    applies = (step.tv_expected == 0) & (step.tv_max > 0)
    return Finding(bound.slack < -step.before.rounding[..., None], applies)


def _step_where_one_never_is(sample: Sample) -> Step:
    """The sampled steps, each only in the one state that its agent never visits."""
    family = sample.at.family
    at = Exact(unvisited(family), sample.at.policy)
    there = np.arange(family.states) == avoided_state(family)[:, None]
    return Step(at, np.where(there[..., None], sample.step.local, at.policy[..., None, :, :]))


CLAIMS = [
    Claim(
        "anchored-theorem-1",
        "ours",
        "sum_k q_k AA_k >= AA_n - a_n E_bar[TV], a_n = max_s span_a (D_n B_n)(s) / rho_bar(s)",
        "holds",
        lambda sample: inequality(bounds.anchored_theorem_1(sample.step), sample),
    ),
    Claim(
        "anchored-corollary-2",
        "ours",
        "eta(pi_n) >= eta + AA_n - (a_n + b) E_bar[TV], b = max_k 2 eps_k gamma/(1-gamma)",
        "holds",
        _corollary_2,
    ),
    Claim(
        "anchored-eq-23",
        "ours",
        "eta(pi_n) >= eta + AA_n - (a_n + b) E_bar[sqrt(KL/2)]",
        "holds",
        lambda sample: inequality(bounds.anchored_equation_23(sample.step), sample),
    ),
    Claim(
        "anchored",
        "ours",
        "eta(pi_n) >= eta + AA_n - a_n E_bar[TV] - C TV_max^2",
        "holds",
        _anchored,
    ),
    Claim(
        "anchored-average",
        "ours",
        "the same for the server's average, any weights",
        "holds",
        _average,
    ),
    Claim(
        "own-states",
        "Corollary 2 without delta",
        "with some c, eta(pi_n) >= eta + AA_n - c E[TV] also for steps where agent n never is",
        "false",
        _own_states,
    ),
    Claim(
        "anchored-unvisited",
        "ours",
        "in the same cases eta(pi_n) >= eta + AA_n - (a_n + b) E_bar[TV]",
        "holds",
        _unvisited,
    ),
]
