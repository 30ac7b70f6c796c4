"""Rounds of federated policy iteration: Algorithm 1 of the paper, and versions that move.

An algorithm is a function of the exact quantities at the global policy and of the server's weights.
It returns the next global policy and how much the global objective must at least have risen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedkl.tabular import bounds, objectives
from fedkl.tabular.best_response import Moves, best_response
from fedkl.tabular.distances import differ
from fedkl.tabular.exact import Exact
from fedkl.tabular.objectives import Objective
from fedkl.tabular.step import Step
from fedkl.tabular.validation import FloatArray

# Every radius from 1 down to a billionth, by factors of sqrt(2), and staying where one is.
RADII = np.concatenate([2.0 ** (-0.5 * np.arange(60)), [0.0]])


@dataclass(frozen=True)
class Round:
    """The result of a round.

    Attributes:
        policy: the next global policy, [..., S, A].
        guarantee: what eta must at least have risen by, [...]; None if nothing is promised.
        moved: which agents' local policies differ from the global one, [..., N] or [..., 1] where
            the server moves alone.
        memory: what the algorithm wants to see again next round.
    """

    policy: FloatArray
    guarantee: FloatArray | None
    moved: np.ndarray
    memory: FloatArray | None = None


Algorithm = Callable[[Exact, FloatArray, FloatArray | None], Round]


def paper(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
    """Algorithm 1: each agent maximises h_n (eq. 22), and the server averages the policies."""
    return _each_agent(at, weights, objectives.paper(at))


def second_order(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
    """Algorithm 1 with our h_n, whose penalty for moving is of second order."""
    return _each_agent(at, weights, objectives.second_order(at))


def second_order_exact(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
    """The server shares M, so that all agents would make the same step: one step for all."""
    objective = objectives.second_order_exact(at)
    local = best_response(objective)
    return Round(
        policy=local[..., 0, :, :],
        guarantee=objective(local)[..., 0],
        moved=differ(local, objective.policy),
    )


def anchored(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
    """Algorithm 1 with one coefficient for divergence in the federation's states."""
    return _each_agent(at, weights, objectives.anchored(at))


def own_states(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
    """`anchored` with the same coefficient for divergence in each agent's own states alone."""
    return replace(_each_agent(at, weights, objectives.own_states(at)), guarantee=None)


def common_radius(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
    """Second order with one radius for all, which the server chooses by the sharper lemma.

    For every radius the agents report what they gain within it (as in `second_order`) and what
    the lemma charges them for the averaged policy; the server takes the best difference.
    """
    objective = objectives.second_order(at)
    moves = Moves.of(objective)
    shape = objective.linear.shape
    best = Round(at.policy, np.full(shape[:-1], -np.inf), np.zeros(shape, dtype=bool))
    for radius in RADII:
        radii = np.full(shape, radius)
        local = moves.policy(radii)
        policy = Step(at, local).averaged(weights)
        charge = bounds.second_order_charge(Step(at, policy[..., None, :, :]))
        promise = (weights * moves.gain(radii)).sum(axis=-1)
        promise -= (at.family.weights * charge).sum(axis=-1)
        moved = differ(local, objective.policy)
        best = _better(best, Round(policy, promise, moved))
    return best


def line_search(at: Exact, weights: FloatArray, memory: FloatArray | None = None) -> Round:
    """The server tries radii along M; the agents report their returns; the best is kept."""
    moves = Moves.of(objectives.second_order_exact(at))
    shape = at.expected_return.shape
    # What rises by no more than rounding does not count.
    best = Round(at.policy, at.rounding, np.zeros((*shape, 1), dtype=bool))
    for radius in RADII[:-1:2]:
        policy = moves.policy(np.full((*shape, 1), radius))[..., 0, :, :]
        rise = Exact(at.family, policy).expected_return - at.expected_return
        moved = differ(policy, at.policy)[..., None]
        best = _better(best, Round(policy, rise, moved))
    # The rise was measured, not promised: all that is known beforehand is that nothing is lost.
    return Round(best.policy, np.zeros(shape), best.moved)


def _each_agent(at: Exact, weights: FloatArray, objective: Objective) -> Round:
    local = best_response(objective)
    return Round(
        policy=Step(at, local).averaged(weights),
        guarantee=(weights * objective(local)).sum(axis=-1),
        moved=differ(local, objective.policy),
    )


def _better(old: Round, new: Round) -> Round:
    """For each family of a batch the round that promises more; the old one if they tie."""
    assert old.guarantee is not None
    assert new.guarantee is not None
    wins = new.guarantee > old.guarantee
    return Round(
        policy=np.where(wins[..., None, None], new.policy, old.policy),
        guarantee=np.where(wins, new.guarantee, old.guarantee),
        moved=np.where(wins[..., None], new.moved, old.moved),
    )
