"""Claims about the level of heterogeneity: Definition 1, Theorem 1, Corollary 1, and G_n."""

from __future__ import annotations

import numpy as np

from fedkl.tabular import bounds, constants
from fedkl.tabular.claims.base import BoolArray, Claim, Finding, implication, inequality
from fedkl.tabular.counterexamples import identical, shaped
from fedkl.tabular.distances import frobenius
from fedkl.tabular.exact import Exact
from fedkl.tabular.sampling import Sample
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray

# Differences smaller than this, relative to what is compared, are not told apart.
_MARGIN = 1e-8


def _alike_means_zero(sample: Sample) -> Finding:
    at = Exact(identical(sample.at.family), sample.at.policy)
    zero = at.heterogeneity_level <= 1e-9 * (1 + frobenius(at.advantage))
    return implication(np.ones(zero.shape, dtype=bool), zero)


def _different_means_positive(sample: Sample) -> Finding:
    family = shaped(sample.at.family)
    at = Exact(family, sample.at.policy)
    positive = at.heterogeneity_level > 1e-9 * (1 + frobenius(at.advantage))
    unequal = np.ptp(family.rewards, axis=-3).max(axis=(-2, -1)) > 0
    return implication(np.broadcast_to(unequal[..., None], positive.shape), positive)


def _alike_meets_condition(sample: Sample) -> Finding:
    at = Exact(identical(sample.at.family), sample.at.policy)
    level, potential = at.heterogeneity_level, frobenius(at.advantage)
    return implication(at.largest_advantage > _MARGIN, _clearly_less(level, potential, sample))


def _corollary_1_printed(sample: Sample) -> Finding:
    at = sample.at
    fails = _clearly_less(frobenius(at.advantage), at.heterogeneity_level, sample)
    return implication(fails & (at.largest_advantage > _MARGIN), ~_own_step_improves(sample))


def _negative_potential(sample: Sample) -> Finding:
    at = sample.at
    level, potential = frobenius(at.weighted_heterogeneity), frobenius(at.weighted_advantage)
    negative = _clearly_less(potential, level, sample) & (at.largest_advantage > _MARGIN)
    return implication(negative, ~_own_step_improves(sample))


def _own_step_improves(sample: Sample) -> BoolArray:
    """True if agent n's own small improvement pi (1 + t A_n) raises the global return. [F, D, N]"""
    at = sample.at
    t = 0.1 / np.maximum(at.largest_advantage, _MARGIN)
    rise = _along_advantage(at, t).global_return - at.expected_return[..., None]
    return rise > sample.rounding[..., None]


def _along_advantage(at: Exact, t: FloatArray) -> Step:
    local = at.policy[..., None, :, :] * (1 + t[..., None, None] * at.advantage)
    return Step(at, local / local.sum(axis=-1, keepdims=True))


def _alignment_is_exact(sample: Sample) -> Finding:
    at = sample.at
    alignment, epsilon = at.alignment, np.maximum(at.largest_advantage, _MARGIN)
    # TV_max <= t eps / 2, so within this t what is of second order is at most half of t alignment.
    C = np.maximum(constants.curvature(at)[..., None], _MARGIN)
    t = np.minimum(0.5 / epsilon, 2 * abs(alignment) / (C * epsilon**2))
    measurable = t * abs(alignment) > 1e3 * sample.rounding[..., None]
    rise = _along_advantage(at, t).global_return - at.expected_return[..., None]
    return implication(measurable, np.sign(rise) == np.sign(alignment))


def _weighted_norm_suffices(sample: Sample) -> Finding:
    at = sample.at
    weight = at.visitation[..., None] * at.policy[..., None, :, :]
    potential = np.sqrt((weight * at.advantage**2).sum(axis=(-2, -1)))
    level = np.sqrt((weight * at.heterogeneity_matrix**2).sum(axis=(-2, -1)))
    return implication(_clearly_less(level, potential, sample), at.alignment > 0)


def _potential_aligns(sample: Sample) -> Finding:
    at = sample.at
    return implication(_positive_potential(sample) & _full_support(at), at.alignment > 0)


def _potential_suffices(sample: Sample) -> Finding:
    return _joint_improvement(sample, _positive_potential(sample))


def _corollary_1_reversed(sample: Sample) -> Finding:
    at = sample.at
    clear = _clearly_less(at.heterogeneity_level, frobenius(at.advantage), sample)
    return _joint_improvement(sample, clear)


def _positive_potential(sample: Sample) -> BoolArray:
    at = sample.at
    level, potential = frobenius(at.weighted_heterogeneity), frobenius(at.weighted_advantage)
    return _clearly_less(level, potential, sample)


def _clearly_less(level: FloatArray, potential: FloatArray, sample: Sample) -> BoolArray:
    return potential - level > _MARGIN * potential + sample.rounding[..., None]


def _full_support(at: Exact) -> BoolArray:
    return np.asarray(at.policy.min(axis=(-2, -1)) > 0)[..., None]


def _joint_improvement(sample: Sample, condition: BoolArray) -> Finding:
    """The finding for: where the condition holds, one small step raises both eta_n and eta."""
    at = sample.at
    applies = condition & _full_support(at)
    local, gain = _step_along_bisector(at, applies)
    step = Step(at, local)
    own = step.own_return - at.agent_returns
    everywhere = step.global_return - at.expected_return[..., None]
    # A condition that holds by a hair may leave a gain too small to be seen in the returns.
    seen = applies & ~((gain > 0) & (gain <= 1e2 * sample.rounding[..., None]))
    return implication(seen, np.minimum(own, everywhere) > 0)


def _step_along_bisector(at: Exact, where: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Local policies [..., N, S, A], and what each gains to first order for eta_n and eta at least.

    The step is in the state where M and D_n A_n point the same way most, along their bisector, and
    so small that what is of second order (our lemma) takes off at most half of what is of first.
    """
    shape = at.weighted_advantage.shape
    M = np.broadcast_to(at.global_advantage[..., None, :, :], shape)
    state = (M * at.weighted_advantage).sum(axis=-1).argmax(axis=-1)[..., None, None]
    pi = np.broadcast_to(at.policy[..., None, :, :], shape)
    x, y, p = (
        np.take_along_axis(rows, state, axis=-2)[..., 0, :]
        for rows in (M, at.weighted_advantage, pi)
    )
    change = np.where(where[..., None], _unit(x) + _unit(y), 0.0)
    gains = np.stack([(y * change).sum(axis=-1), (x * change).sum(axis=-1)])  # of eta_n, of eta
    C = np.stack([constants.agent_curvature(at), constants.curvature(at)[..., None] + 0 * gains[0]])
    curved = 2 * C * (0.5 * abs(change).sum(axis=-1)) ** 2
    small = np.divide(gains, curved, out=np.ones_like(gains), where=curved > 0).min(axis=0)
    inside = np.divide(p, -change, out=np.ones_like(p), where=change < 0).min(axis=-1)
    t = np.clip(np.minimum(small, inside), 0.0, 1.0)
    moved = np.maximum(p + t[..., None] * change, 0.0)[..., None, :]
    local = pi.copy()
    np.put_along_axis(local, np.broadcast_to(state, moved.shape), moved, axis=-2)
    return local / local.sum(axis=-1, keepdims=True), t * gains.min(axis=0)


def _unit(x: FloatArray) -> FloatArray:
    """The direction of a vector within those that sum to zero."""
    centred = x - x.mean(axis=-1, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=-1, keepdims=True))
    direction = centred / np.where(norm > 0, norm, 1.0)
    return direction - direction.mean(axis=-1, keepdims=True)  # where rounding was all there was


def _frobenius_expansion(sample: Sample) -> Finding:
    at = sample.at
    printed = bounds.printed_expansion(at)
    equal = abs(printed - at.heterogeneity_level) <= 1e-9 * (1 + printed)
    return implication(np.ones(equal.shape, dtype=bool), equal)


CLAIMS = [
    Claim(
        "definition-1-alike",
        "Definition 1",
        "agents that are alike have ||B_n||_F = 0",
        "holds",
        _alike_means_zero,
    ),
    Claim(
        "definition-1-different",
        "Definition 1",
        "agents that differ have ||B_n||_F > 0",
        "false",
        _different_means_positive,
    ),
    Claim(
        "theorem-1",
        "Theorem 1",
        "sum_k q_k AA_k >= AA_n - 2 ||B_n||_F E[TV]",
        "holds",
        lambda sample: inequality(bounds.theorem_1(sample.step), sample),
    ),
    Claim(
        "theorem-1-sqrt2",
        "ours",
        "sum_k q_k AA_k >= AA_n - sqrt(2) ||B_n||_F E[TV]",
        "holds",
        lambda sample: inequality(bounds.theorem_1_sqrt2(sample.step), sample),
    ),
    Claim(
        "theorem-1-l2",
        "Theorem 1's proof",
        "sum_k q_k AA_k >= AA_n - ||B_n||_F ||D_n (Pi_n - Pi)||_F",
        "holds",
        lambda sample: inequality(bounds.theorem_1_l2(sample.step), sample),
    ),
    Claim(
        "theorem-1-rows",
        "ours",
        "sum_k q_k AA_k >= AA_n - sqrt(2) sum_s ||(D_n B_n)(s)||_2 TV_s",
        "holds",
        lambda sample: inequality(bounds.theorem_1_rows(sample.step), sample),
    ),
    Claim(
        "theorem-1-span",
        "ours",
        "sum_k q_k AA_k >= AA_n - sum_s span_a (D_n B_n)(s) TV_s",
        "holds",
        lambda sample: inequality(bounds.theorem_1_span(sample.step), sample),
    ),
    Claim(
        "corollary-1",
        "Corollary 1",
        "without ||B_n||_F < ||A_n||_F no local update improves eta",
        "false",
        _corollary_1_printed,
    ),
    Claim(
        "remark-2",
        "Remark 2",
        "agents that are alike have ||B_n||_F < ||A_n||_F unless A_n = 0",
        "holds",
        _alike_meets_condition,
    ),
    Claim(
        "corollary-1-bound",
        "Corollary 1's proof",
        "AA_n <= ||A_n||_F ||D_n (Pi_n - Pi)||_F",
        "holds",
        lambda sample: inequality(bounds.corollary_1(sample.step), sample),
    ),
    Claim(
        "corollary-1-reversed",
        "ours",
        "with ||B_n||_F < ||A_n||_F some update improves both eta_n and eta",
        "holds",
        _corollary_1_reversed,
    ),
    Claim(
        "alignment",
        "ours",
        "small steps pi (1 + t A_n) improve eta exactly if the alignment is positive",
        "holds",
        _alignment_is_exact,
    ),
    Claim(
        "weighted-norm",
        "ours",
        "||B_n|| < ||A_n|| in E_{rho_n,pi}[X^2] makes the alignment positive",
        "holds",
        _weighted_norm_suffices,
    ),
    Claim(
        "potential-negative",
        "Experiments",
        "where G_n < 0, agent n's own small step pi (1 + t A_n) does not improve eta",
        "false",
        _negative_potential,
    ),
    Claim(
        "potential-positive",
        "its converse",
        "where G_n > 0, the alignment is positive: such a step does improve eta",
        "false",
        _potential_aligns,
    ),
    Claim(
        "potential",
        "ours",
        "with G_n > 0 some update improves both eta_n and eta",
        "holds",
        _potential_suffices,
    ),
    Claim(
        "frobenius-expansion",
        "Lemma 6's proof",
        "||B_n||_F = sum_k q_k sum_sa [rho_k/rho_n A_k - A_n]^2",
        "false",
        _frobenius_expansion,
    ),
]
