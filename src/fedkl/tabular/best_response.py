"""The argmax of a local objective in closed form, for a whole batch at once.

In each state the best use of total variation is to move probability from the worst actions to the
best one, worst first, as long as the gain is worth the price. Within a radius tau that holds in
every state by itself; what is left is a concave function of the one number tau, piecewise linear
or quadratic, whose maximum is found by looking at its pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkl.tabular.objectives import Objective
from fedkl.tabular.validation import FloatArray


@dataclass(frozen=True)
class Moves:
    """The moves that are worth making in each state, in the order of making them.

    Attributes:
        order: actions from worst to best, [..., S, A].
        probability: what each of them has to give away, in that order, [..., S, A].
        worth: of moving a unit of it to the best action, less the price; not increasing, not
            negative. [..., S, A]
    """

    order: np.ndarray
    probability: FloatArray
    worth: FloatArray

    @staticmethod
    def of(objective: Objective) -> Moves:
        """The moves of an objective."""
        order = np.argsort(objective.gain, axis=-1, kind="stable")
        gain = np.take_along_axis(objective.gain, order, axis=-1)
        worth = gain[..., -1:] - gain - objective.price[..., None]
        # Else an agent at a stationary point would be moved by rounding.
        worth = np.where(worth > objective.rounding[..., None], worth, 0.0)
        return Moves(order, np.take_along_axis(objective.policy, order, axis=-1), worth)

    def within(self, radius: FloatArray) -> FloatArray:
        """The probability that each action gives away if no state may move more than the radius
        [...]."""
        before = np.cumsum(self.probability, axis=-1) - self.probability
        given = np.clip(radius[..., None, None] - before, 0.0, self.probability)
        return np.where(self.worth > 0, given, 0.0)

    def gain(self, radius: FloatArray) -> FloatArray:
        """Phi(tau), concave: the most that is gained, less the price, within a radius [...]."""
        return (self.worth * self.within(radius)).sum(axis=(-2, -1))

    def policy(self, radius: FloatArray) -> FloatArray:
        """The policy that attains `gain`, [..., S, A]."""
        given = self.within(radius)
        kept = self.probability - given
        kept[..., -1] += given.sum(axis=-1)
        result = np.empty_like(kept)
        np.put_along_axis(result, self.order, kept, axis=-1)
        return result

    def best_radius(self, linear: FloatArray, quadratic: FloatArray) -> FloatArray:
        """The smallest maximiser of Phi(tau) - linear tau - quadratic tau^2 over [0, 1]. [...]"""
        # Phi' falls at the points where a state has used up an action and goes on to the next.
        ends = np.cumsum(self.probability, axis=-1)
        falls = -np.diff(self.worth, axis=-1, append=0.0)
        flat = (*ends.shape[:-2], -1)
        ends, falls = ends.reshape(flat), falls.reshape(flat)
        order = np.argsort(ends, axis=-1)
        ends = np.take_along_axis(ends, order, axis=-1)
        falls = np.take_along_axis(falls, order, axis=-1)
        starts = np.concatenate([np.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
        # Summed from the far end, the slope is exactly 0 where nothing is left to gain.
        slopes = np.cumsum(falls[..., ::-1], axis=-1)[..., ::-1] - linear[..., None]
        curved = quadratic[..., None] > 0
        peak = slopes / np.where(curved, 2 * quadratic[..., None], 1.0)
        stops = np.where(curved, np.minimum(peak, ends), ends)
        rising = slopes > 2 * quadratic[..., None] * starts
        return np.where(rising, stops, 0.0).max(axis=-1)


def first_order_gap(objective: Objective) -> FloatArray:
    """Phi(1): the most that could be gained if `linear` and `quadratic` were 0, [...].

    Of the second-order objectives it is 0 exactly where pi is stationary; of the exact one it is
    the Frank-Wolfe gap of max eta.
    """
    return Moves.of(objective).gain(np.ones(objective.linear.shape))


def best_response(objective: Objective) -> FloatArray:
    """The policy that maximises the objective, [..., S, A]; pi itself where nothing is better.

    Of several maximisers it is the one nearest to pi, so an agent at a stationary point stays.

    Example:
        >>> from fedkl.tabular import Exact, families, objectives
        >>> family = families.random(agents=2, states=3, actions=2, gamma=0.9, seed=1)
        >>> at = Exact(family, family.uniform_policy())
        >>> bool((best_response(objectives.paper(at)) == 0.5).all())
        True
    """
    moves = Moves.of(objective)
    return moves.policy(moves.best_radius(objective.linear, objective.quadratic))
