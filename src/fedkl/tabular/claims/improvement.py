"""Claims about the global objective: Corollary 2, Theorems 2 and 3, and vacuity."""

from __future__ import annotations

import numpy as np

from fedkl.tabular import algorithms, bounds, objectives, optimum
from fedkl.tabular.best_response import best_response
from fedkl.tabular.claims.base import (
    VACUOUS_FROM,
    Claim,
    Finding,
    aligned,
    bound_and_promise,
    implication,
    inequality,
)
from fedkl.tabular.counterexamples import alike, without_rewards
from fedkl.tabular.exact import Exact
from fedkl.tabular.objectives import Objective
from fedkl.tabular.sampling import Sample
from fedkl.tabular.validation import FloatArray

_ROUNDS = 10


def _corollary_2(sample: Sample) -> Finding:
    best = _largest(objectives.paper(sample.at))
    return bound_and_promise(bounds.corollary_2(sample.step), best, sample)


def _corollary_2_corrected(sample: Sample) -> Finding:
    best = _largest(objectives.corrected(sample.at))
    return bound_and_promise(bounds.corollary_2_corrected(sample.step), best, sample)


def _theorem_2(sample: Sample) -> Finding:
    bound = bounds.averaged(sample.step, sample.weights, bounds.corollary_2(sample.step))
    best = (sample.weights * _largest(objectives.paper(sample.at))).sum(axis=-1)
    return bound_and_promise(bound, best, sample)


def _monotone(sample: Sample) -> Finding:
    returns, promises = _run(sample)
    rounding = sample.rounding[..., None]
    short = np.diff(returns, axis=-1) < np.maximum(promises, 0.0) - rounding
    asked = np.broadcast_to(aligned(sample.at.family.gamma >= VACUOUS_FROM, short), short.shape)
    everywhere = np.ones(short.shape, dtype=bool)
    return Finding(short, everywhere, promises=asked & (promises > rounding), asked=asked)


def _returns_converge(sample: Sample) -> Finding:
    returns, promises = _run(sample)
    family = sample.at.family
    own = Exact(family.alone(), optimum.policy_iteration(family.alone())).expected_return
    room = (family.weights * own).sum(axis=-1) - returns[..., 0]
    smallest = promises.min(axis=-1)
    violated = smallest > room / _ROUNDS + sample.rounding
    return Finding(violated, np.ones(violated.shape, dtype=bool))


def _run(sample: Sample) -> tuple[FloatArray, FloatArray]:
    """Some rounds of Algorithm 1: returns [F, D, T + 1], and promises sum_n w_n max h_n."""
    at = sample.at
    returns, promises = [at.expected_return], []
    for _ in range(_ROUNDS):
        result = algorithms.paper(at, sample.weights)
        at = Exact(at.family, result.policy)
        returns.append(at.expected_return)
        promises.append(np.asarray(result.guarantee))
    return np.stack(returns, axis=-1), np.stack(promises, axis=-1)


def _policies_converge(sample: Sample) -> Finding:
    family = without_rewards(sample.at.family)
    there = objectives.paper(Exact(family, sample.at.policy))
    back = objectives.paper(Exact(family[..., None], sample.step.local))
    # If each is an argmax at the other, Algorithm 1 may go there and back for ever.
    goes = there(sample.step.local) >= _largest(there)
    returns = back(sample.at.policy[..., None, None, :, :]) >= _largest(back)
    alternates = goes & returns.all(axis=-1) & (sample.step.tv_max > 0)
    return implication(sample.step.tv_max > 0, ~alternates)


def _delta_remains(sample: Sample) -> Finding:
    at = Exact(alike(sample.at.family), sample.at.policy)
    constant = bounds.paper_constant(at)
    positive = bounds.delta(at, constant) > 1e-9 * constant
    return implication(constant > 0, positive)


def _equation_23(sample: Sample) -> Finding:
    return inequality(bounds.equation_23(sample.step), sample)


def _vacuity(sample: Sample) -> Finding:
    return _never_moves(sample, objectives.paper(sample.at), VACUOUS_FROM)


def _vacuity_corrected(sample: Sample) -> Finding:
    return _never_moves(sample, objectives.corrected(sample.at), 0.5)


def _never_moves(sample: Sample, objective: Objective, threshold: float) -> Finding:
    stays = _largest(objective) <= sample.rounding[..., None]
    beyond = np.broadcast_to((sample.at.family.gamma >= threshold)[..., None], stays.shape)
    return implication(beyond, stays)


def _stationarity(sample: Sample) -> Finding:
    excess = objectives.stationarity_excess(sample.at)
    rounding = sample.rounding[..., None]
    # Within rounding of zero the two cannot be told apart.
    clear = abs(excess) > 1e3 * rounding
    moves = (best_response(objectives.paper(sample.at)) != sample.at.policy[..., None, :, :]).any(
        axis=(-2, -1)
    )
    return implication(clear, moves == (excess > 0))


def _largest(objective: Objective) -> FloatArray:
    return objective(best_response(objective))


CLAIMS = [
    Claim(
        "corollary-2",
        "Corollary 2",
        "eta(pi_n) >= eta + AA_n - (alpha+beta) E[TV] - delta TV_max",
        "holds but vacuous",
        _corollary_2,
    ),
    Claim(
        "corollary-2-corrected",
        "ours",
        "the same with c_k = 2 eps_k gamma/(1-gamma)",
        "holds",
        _corollary_2_corrected,
    ),
    Claim(
        "remark-4",
        "Remark 4",
        "for agents that are alike the delta penalty remains",
        "false",
        _delta_remains,
    ),
    Claim(
        "theorem-2-average",
        "Theorem 2's proof",
        "eta(sum_n w_n pi_n) - eta >= sum_n w_n h_n(pi_n), any weights",
        "holds but vacuous",
        _theorem_2,
    ),
    Claim(
        "theorem-2",
        "Theorem 2",
        "Algorithm 1 never loses",
        "holds but vacuous",
        _monotone,
    ),
    Claim(
        "theorem-3-returns",
        "Theorem 3's proof",
        "max h_n gets as small as (max eta - eta_0) / T within T rounds",
        "holds",
        _returns_converge,
    ),
    Claim(
        "theorem-3",
        "Theorem 3",
        "the policies of Algorithm 1 converge",
        "false",
        _policies_converge,
    ),
    Claim(
        "stationarity",
        "ours",
        "max h_n > 0 exactly if sum_s rho_n [sigma_n - alpha_n - beta]_+ > delta_n",
        "holds",
        _stationarity,
    ),
    Claim(
        "vacuity",
        "ours",
        "Algorithm 1 never moves for gamma >= 2 - sqrt(3)",
        "holds",
        _vacuity,
    ),
    Claim(
        "vacuity-corrected",
        "ours",
        "with the corrected constant it never moves for gamma >= 1/2",
        "holds",
        _vacuity_corrected,
    ),
    Claim(
        "eq-23",
        "eq. 23",
        "h_n >= AA_n - (alpha+beta+delta) E[sqrt(KL/2)]",
        "false",
        _equation_23,
    ),
]
