"""Claims about our second-order versions."""

from __future__ import annotations

import numpy as np

from fedkl.tabular import bounds, objectives
from fedkl.tabular.best_response import best_response, first_order_gap
from fedkl.tabular.bounds import Bound
from fedkl.tabular.claims.base import (
    Claim,
    Finding,
    bound_and_promise,
    implication,
    inequality,
    promised,
    promised_average,
)
from fedkl.tabular.sampling import Sample


def _lemma(sample: Sample) -> Finding:
    bound = bounds.second_order_local(sample.step)
    both = Bound(left=-abs(bound.gap), surrogate=0 * bound.gap, penalty=bound.penalty)
    return inequality(both, sample)


def _second_order(sample: Sample) -> Finding:
    return promised(objectives.second_order(sample.at), bounds.second_order(sample.step), sample)


def _second_order_average(sample: Sample) -> Finding:
    bound = bounds.second_order(sample.step)
    return promised_average(objectives.second_order(sample.at), bound, sample)


def _exact(sample: Sample) -> Finding:
    objective = objectives.second_order_exact(sample.at)
    best = objective(best_response(objective))[..., 0]
    return bound_and_promise(bounds.second_order_exact(sample.step), best, sample)


def _exact_average(sample: Sample) -> Finding:
    objective = objectives.second_order_exact(sample.at)
    best = objective(best_response(objective))[..., 0]
    bound = bounds.averaged(sample.step, sample.weights, bounds.second_order_exact(sample.step))
    return bound_and_promise(bound, best, sample)


def _rate(sample: Sample) -> Finding:
    objective = objectives.second_order(sample.at)
    gap = first_order_gap(objective)
    short = gap**2 - 4 * objective.quadratic * objective(best_response(objective))
    enough = short <= 1e-9 * gap**2 + 4 * objective.quadratic * sample.rounding[..., None]
    far_sighted = np.broadcast_to((sample.at.family.gamma >= 0.2)[..., None], enough.shape)
    return implication(far_sighted, enough)


CLAIMS = [
    Claim(
        "second-order-lemma",
        "ours",
        "|eta_n(pi') - eta_n - AA_n| <= 2 gamma/(1-gamma) max_s[TV_s span A_n(s)] E[TV]",
        "holds",
        _lemma,
    ),
    Claim(
        "second-order",
        "ours",
        "eta(pi_n) >= eta + AA_n - sum_s span_a (D_n B_n)(s) TV_s - C TV_max^2",
        "holds",
        _second_order,
    ),
    Claim(
        "second-order-average",
        "ours",
        "eta(sum_n w_n pi_n) - eta >= sum_n w_n h2_n(pi_n), any weights",
        "holds",
        _second_order_average,
    ),
    Claim(
        "second-order-exact",
        "ours",
        "eta(pi_n) >= eta + <M, Pi_n - Pi> - C TV_max^2",
        "holds",
        _exact,
    ),
    Claim(
        "second-order-exact-average",
        "ours",
        "the same with <M, Pi_n - Pi> - C TV_max^2 in place of h2_n",
        "holds",
        _exact_average,
    ),
    Claim(
        "rate",
        "ours",
        "a round promises at least g_n^2 / 4C, g_n the first-order gap (gamma >= 1/5)",
        "holds",
        _rate,
    ),
]
