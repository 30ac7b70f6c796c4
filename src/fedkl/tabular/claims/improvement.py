"""Claims about the global objective: Corollary 2, Theorems 2 and 3, stationarity and vacuity."""

from __future__ import annotations

import numpy as np

from fedkl.tabular import bounds, constants, objectives
from fedkl.tabular.best_response import best_response
from fedkl.tabular.claims.base import (
    VACUOUS_FROM,
    BoolArray,
    Claim,
    Finding,
    bound_and_promise,
    implication,
    inequality,
)
from fedkl.tabular.counterexamples import identical, without_rewards
from fedkl.tabular.distances import differ, total_variation
from fedkl.tabular.exact import Exact
from fedkl.tabular.objectives import Objective
from fedkl.tabular.sampling import Sample
from fedkl.tabular.validation import FloatArray

# Rounds that move by less are not told from rounds that stay: they depend on the machine.
_LEAST_MOVE = 1e-9
# Of what it is compared with, so much is nothing.
_SMALL = 1e-9


def _corollary_2(sample: Sample) -> Finding:
    best = _largest(objectives.paper(sample.at))
    return bound_and_promise(bounds.corollary_2(sample.step), best, sample)


def _corollary_2_corrected(sample: Sample) -> Finding:
    best = _largest(objectives.corrected(sample.at))
    return bound_and_promise(bounds.corollary_2_corrected(sample.step), best, sample)


def _constants_of_alike(sample: Sample) -> Finding:
    at = Exact(identical(sample.at.family), sample.at.policy)
    c = constants.paper_constant(at)
    none = constants.alpha(at) <= _SMALL * (1 + at.largest_advantage)
    same = abs(constants.beta(at, c)[..., None] - c) <= _SMALL * c
    return implication(np.ones(c.shape, dtype=bool), none & same)


def _delta_of_alike(sample: Sample) -> Finding:
    at = Exact(identical(sample.at.family), sample.at.policy)
    c = constants.paper_constant(at)
    positive = constants.delta(at, c) * (1 - at.family.gamma[..., None]) > _SMALL * c
    return implication(at.largest_advantage > _SMALL, positive)


def _theorem_2(sample: Sample) -> Finding:
    bound = bounds.averaged(sample.step, sample.weights, bounds.corollary_2(sample.step))
    best = (sample.weights * _largest(objectives.paper(sample.at))).sum(axis=-1)
    return bound_and_promise(bound, best, sample)


def _monotone(sample: Sample) -> Finding:
    rounds = sample.paper_rounds
    rise, promise = (
        np.stack(numbers, axis=-1)
        for numbers in ([r.rise for r in rounds], [r.promise for r in rounds])
    )
    rounding = sample.rounding[..., None]
    asked = np.broadcast_to((sample.at.family.gamma >= VACUOUS_FROM)[..., None], rise.shape)
    return Finding(
        violated=rise < np.maximum(promise, 0.0) - rounding,
        applies=_moved(sample),
        promises=asked & (promise > rounding),
        asked=asked,
    )


def _steps_are_paid_for(sample: Sample) -> Finding:
    """A round's rise is at least what separates the printed constant from the one it needs."""
    gamma = sample.at.family.gamma[..., None]
    paid = []
    for taken in sample.paper_rounds:
        at = taken.before
        tv = total_variation(at.policy, taken.after.policy)[..., None, :]
        surplus = 2 * gamma * (1 + gamma) / (1 - gamma) ** 2 * at.largest_advantage
        least = (at.family.weights * surplus * (at.visitation * tv).sum(axis=-1)).sum(axis=-1)
        paid.append(taken.rise >= least - sample.rounding)
    return implication(_moved(sample), np.stack(paid, axis=-1))


def _moved(sample: Sample) -> BoolArray:
    """In which of the rounds of Algorithm 1 the policy moved by more than rounding, [F, D, T]."""
    rounds = sample.paper_rounds
    tv = [total_variation(r.before.policy, r.after.policy).max(axis=-1) for r in rounds]
    return np.stack(tv, axis=-1) > _LEAST_MOVE


def _converges_without_rewards(sample: Sample) -> Finding:
    family = without_rewards(sample.at.family)
    there = objectives.paper(Exact(family, sample.at.policy))
    back = objectives.paper(Exact(family[..., None], sample.step.local))
    # If each is an argmax at the other, Algorithm 1 may go there and back for ever.
    goes = there(sample.step.local) >= _largest(there)
    returns = back(sample.at.policy[..., None, None, :, :]) >= _largest(back)
    alternates = goes & returns.all(axis=-1) & (sample.step.tv_max > 0)
    return implication(sample.step.tv_max > 0, ~alternates)


def _only_maximiser(sample: Sample) -> Finding:
    h = objectives.paper(Exact(without_rewards(sample.at.family), sample.at.policy))
    largest, other = _largest(h), sample.step.tv_max > 0
    return implication(other & (largest <= 0), h(sample.step.local) < largest)


def _equation_23(sample: Sample) -> Finding:
    return inequality(bounds.equation_23(sample.step), sample)


def _vacuity(sample: Sample) -> Finding:
    return _never_moves(sample, objectives.paper(sample.at), VACUOUS_FROM)


def _vacuity_corrected(sample: Sample) -> Finding:
    return _never_moves(sample, objectives.corrected(sample.at), 0.5)


def _never_moves(sample: Sample, objective: Objective, threshold: float) -> Finding:
    """Strictly beyond the threshold, for at it there are ties, which rounding decides."""
    stays = ~differ(best_response(objective), objective.policy)
    beyond = np.broadcast_to((sample.at.family.gamma > threshold)[..., None], stays.shape)
    return implication(beyond, stays)


def _stationarity(sample: Sample) -> Finding:
    excess = objectives.stationarity_excess(sample.at)
    rounding = sample.rounding[..., None]
    # Within rounding of zero the two cannot be told apart.
    clear = abs(excess) > 1e3 * rounding
    moves = differ(best_response(objectives.paper(sample.at)), sample.at.policy[..., None, :, :])
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
        "Corollary 2 with c_k = 2 eps_k gamma/(1-gamma) and half of delta",
        "holds",
        _corollary_2_corrected,
    ),
    Claim(
        "remark-4",
        "Remark 4",
        "agents that are alike have alpha = 0 and beta = c, the constant of eq. 12",
        "holds",
        _constants_of_alike,
    ),
    Claim(
        "remark-4-delta",
        "Remark 4",
        "agents that are alike have delta > 0",
        "false",
        _delta_of_alike,
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
        "theorem-3",
        "Theorem 3",
        "policies converge: a round gains 2 gamma(1+gamma)/(1-gamma)^2 sum_k q_k eps_k E_k[TV]",
        "holds",
        _steps_are_paid_for,
    ),
    Claim(
        "theorem-3-no-rewards",
        "Theorem 3's exception",
        "the policies converge also where no action matters",
        "false",
        _converges_without_rewards,
    ),
    Claim(
        "definition-2",
        "Definition 2",
        "where max h_n = 0, pi is the only policy that has it",
        "false",
        _only_maximiser,
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
        "Algorithm 1 never moves for gamma > 2 - sqrt(3)",
        "holds",
        _vacuity,
    ),
    Claim(
        "vacuity-corrected",
        "ours",
        "with the corrected constants it never moves for gamma > 1/2",
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
