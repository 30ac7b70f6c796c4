"""The local objectives of Algorithm 1 and of our second-order versions, which share one shape."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from fedkl.tabular import constants
from fedkl.tabular.distances import inner, span, total_variation
from fedkl.tabular.exact import Exact
from fedkl.tabular.validation import FloatArray


@dataclass(frozen=True)
class Objective:
    """<gain, Pi' - Pi> - sum_s price(s) TV_s - linear TV_max - quadratic TV_max^2, to be maximised.

    It is concave in Pi' and 0 at Pi' = Pi. Batch axes are those of `gain`.

    Attributes:
        policy: Pi, [..., S, A].
        gain: what a unit of probability is worth, [..., S, A].
        price: of a unit of total variation in a state, [..., S].
        linear: of the largest total variation, [...].
        quadratic: of its square, [...].
        rounding: how far gains in a state may be off, [..., S]; what is less counts as nothing.
    """

    policy: FloatArray
    gain: FloatArray
    price: FloatArray
    linear: FloatArray
    quadratic: FloatArray
    rounding: FloatArray = field(default_factory=lambda: np.zeros(1))

    def __getitem__(self, index: Any) -> Objective:
        """A part of a batch of objectives."""
        return Objective(*(getattr(self, f.name)[index] for f in fields(self)))

    def __call__(self, candidate: FloatArray) -> FloatArray:
        """The objective of a policy Pi', [...]."""
        return inner(self.gain, candidate - self.policy) - self.penalty(candidate)

    def penalty(self, candidate: FloatArray) -> FloatArray:
        """The penalty of a policy Pi', taken off its gain, [...]."""
        tv = total_variation(self.policy, candidate)
        largest = tv.max(axis=-1)
        in_states = (self.price * tv).sum(axis=-1)
        return in_states + self.linear * largest + self.quadratic * largest**2


def paper(at: Exact) -> Objective:
    """h_n of the paper (eq. 22), with alpha_n, beta and delta_n of Corollary 2. Batch [..., N]."""
    constant = constants.paper_constant(at)
    return _corollary_2(at, constant, constants.delta(at, constant))


def corrected(at: Exact) -> Objective:
    """h_n with the constants that the proof of Corollary 2 needs. Batch [..., N]."""
    constant = constants.corrected_constant(at)
    return _corollary_2(at, constant, constants.delta(at, constant) / 2)


def second_order(at: Exact) -> Objective:
    """Ours: the price sum_s span_a (D_n B_n)(s) TV_s, and C TV_max^2. Batch [..., N]."""
    quadratic = constants.curvature(at)[..., None]
    price = span(at.weighted_heterogeneity)
    return _objective(at, at.weighted_advantage, price, quadratic=quadratic)


def second_order_exact(at: Exact) -> Objective:
    """Ours, with M itself instead of D_n A_n and a price for their difference. Batch [..., 1]."""
    gain = at.global_advantage[..., None, :, :]
    return _objective(at, gain, np.zeros(1), quadratic=constants.curvature(at)[..., None])


def with_coefficient(at: Exact, coefficient: FloatArray, visitation: FloatArray) -> Objective:
    """AA_n - c E[TV] in states of one's choice: what is trained, with TV for KL. Batch [..., N].

    Args:
        at: the exact quantities at pi.
        coefficient: c, one number or one for each agent, [..., N].
        visitation: the weights of the states, [..., N, S] or [..., 1, S] for all agents.
    """
    return _objective(at, at.weighted_advantage, coefficient[..., None] * visitation)


def anchored_corollary_2(at: Exact) -> Objective:
    """Corollary 2 with all TV in the federation's states, which needs no TV_max. Batch [..., N]."""
    per_tv = constants.anchored_alpha(at) + constants.anchored_beta(at)[..., None]
    return with_coefficient(at, per_tv, at.federation_visitation[..., None, :])


def anchored(at: Exact) -> Objective:
    """Second order with one coefficient for TV in the federation's states. Batch [..., N]."""
    return _anchored(at, at.federation_visitation[..., None, :])


def weighted(at: Exact) -> Objective:
    """`anchored`, with own states and those where others are more often. Batch [..., N]."""
    price = constants.weighted_alpha(at)[..., None] * (at.visitation + at.excess_visitation)
    quadratic = constants.curvature(at)[..., None]
    return _objective(at, at.weighted_advantage, price, quadratic=quadratic)


def own_states(at: Exact) -> Objective:
    """`anchored` with TV in the agent's own states, which bounds nothing. Batch [..., N]."""
    return _anchored(at, at.visitation)


def stationarity_excess(at: Exact) -> FloatArray:
    """The distance of each agent from FedKL-stationarity (Definition 2); at most 0 if it is. [...,
    N]

    sum_s rho_n(s) [sigma_n(s) - alpha_n - beta]_+ - delta_n, where sigma_n(s) is the best advantage
    less the worst of an action that pi takes: max h_n = 0 if and only if this is not positive.
    """
    taken = at.policy[..., None, :, :] > 0
    worst = np.where(taken, at.advantage, np.inf).min(axis=-1)
    sigma = at.advantage.max(axis=-1) - worst
    objective = paper(at)
    gains = np.maximum(at.visitation * sigma - objective.price, 0.0)
    return gains.sum(axis=-1) - objective.linear


def _anchored(at: Exact, visitation: FloatArray) -> Objective:
    price = constants.anchored_alpha(at)[..., None] * visitation
    quadratic = constants.curvature(at)[..., None]
    return _objective(at, at.weighted_advantage, price, quadratic=quadratic)


def _corollary_2(at: Exact, constant: FloatArray, for_largest: FloatArray) -> Objective:
    per_tv = constants.alpha(at) + constants.beta(at, constant)[..., None]
    price = per_tv[..., None] * at.visitation
    return _objective(at, at.weighted_advantage, price, linear=for_largest)


def _objective(
    at: Exact,
    gain: FloatArray,
    price: FloatArray,
    linear: FloatArray | None = None,
    quadratic: FloatArray | None = None,
) -> Objective:
    zero = np.zeros(gain.shape[:-2])
    return Objective(
        policy=np.broadcast_to(at.policy[..., None, :, :], gain.shape),
        gain=gain,
        price=np.broadcast_to(price, gain.shape[:-1]),
        rounding=np.broadcast_to(_rounding(at), gain.shape[:-1]),
        linear=zero if linear is None else linear + zero,
        quadratic=zero if quadratic is None else quadratic + zero,
    )


def _rounding(at: Exact) -> FloatArray:
    """The largest rounding error of the entries of D_n A_n and M in a state, [..., 1, S]."""
    size = abs(at.action_value).max(axis=(-3, -2, -1)) / (1 - at.family.gamma)
    return 1e-14 * size[..., None, None] * at.visitation.max(axis=-2)[..., None, :]
