"""Running an algorithm for many rounds, with its guarantee asserted in every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedkl.tabular import algorithms, baselines
from fedkl.tabular.algorithms import Algorithm
from fedkl.tabular.distances import total_variation
from fedkl.tabular.exact import Exact
from fedkl.tabular.family import Family, check_weights
from fedkl.tabular.validation import FloatArray, InvalidFamily

ALGORITHMS: dict[str, Algorithm] = {
    "paper": algorithms.paper,
    "second-order": algorithms.second_order,
    "second-order-exact": algorithms.second_order_exact,
    "anchored": algorithms.anchored,
    "own-states": algorithms.own_states,
    "common-radius": algorithms.common_radius,
    "line-search": algorithms.line_search,
    "qavg": baselines.qavg(),
    "pavg": baselines.pavg(),
}


@dataclass(frozen=True)
class Trajectory:
    """The course of T rounds; entry 0 of `returns` is the start.

    Attributes:
        policy: the last global policy, [..., S, A].
        returns: eta of the global policy, [T + 1, ...].
        guarantees: what each round promised at least, [T, ...]; NaN where nothing is promised.
        moved: the share of those who took part that moved, [T, ...].
        tv_max: how far the global policy moved, [T, ...].
        monotone: whether no round lost anything beyond rounding.
    """

    policy: FloatArray
    returns: FloatArray
    guarantees: FloatArray
    moved: FloatArray
    tv_max: FloatArray
    monotone: bool


def iterate(
    family: Family,
    algorithm: str | Algorithm,
    rounds: int,
    policy: ArrayLike | None = None,
    weights: ArrayLike | Callable[[int], ArrayLike] | None = None,
) -> Trajectory:
    """Run an algorithm on a family, or on a batch of families at once.

    Args:
        family: the MDPs.
        algorithm: a name of `ALGORITHMS`, or a round of an algorithm, such as `algorithms.paper`.
        rounds: how many.
        policy: where to start, [..., S, A]; uniform by default.
        weights: the server's weights w_n [..., N], non-negative and of sum one, or a function that
            gives them for a round; an agent with weight 0 takes no part. The family's q_n by
            default.

    Raises:
        ValueError: if something is no policy, no weights, or no algorithm, or an algorithm gets to
            a policy at which what it needs is not defined.
        RuntimeError: if the objective rose by less than an algorithm guaranteed, which would be
            a defect of ours or a hole in a proof.
    """
    if rounds < 0:
        raise InvalidFamily(f"rounds must be at least 0, not {rounds}")
    run = _algorithm(algorithm)
    at = Exact(family, family.uniform_policy() if policy is None else policy)
    returns, guarantees, moved, tv_max = [at.expected_return], [], [], []
    memory, monotone = None, True
    for index in range(rounds):
        given = weights(index) if callable(weights) else weights
        w = family.weights if given is None else check_weights(family, given)
        try:
            result = run(at, w, memory)
        except InvalidFamily as error:
            raise InvalidFamily(f"round {index}: {error}") from error
        new = Exact(family, result.policy)
        rise = new.expected_return - at.expected_return
        rounding = np.maximum(at.rounding, new.rounding)
        monotone &= bool((rise >= -rounding).all())
        promised = np.full(rise.shape, np.nan) if result.guarantee is None else result.guarantee
        if result.guarantee is not None and not np.isfinite(promised).all():
            raise InvalidFamily(f"round {index}: what is promised is too large to compute")
        if (rise < promised - rounding).any():
            worst = float((rise - promised).min())
            raise RuntimeError(f"round {index}: eta rose by {-worst:.3g} less than guaranteed")
        returns.append(new.expected_return)
        guarantees.append(promised)
        moved.append(_share_moved(result.moved, w))
        tv_max.append(total_variation(at.policy, new.policy).max(axis=-1))
        at, memory = new, result.memory
    shape = (rounds, *at.expected_return.shape)
    return Trajectory(
        policy=at.policy,
        returns=np.stack(returns),
        guarantees=np.reshape(guarantees, shape),
        moved=np.reshape(moved, shape),
        tv_max=np.reshape(tv_max, shape),
        monotone=monotone,
    )


def _algorithm(algorithm: str | Algorithm) -> Algorithm:
    if not isinstance(algorithm, str):
        return algorithm
    if algorithm not in ALGORITHMS:
        raise InvalidFamily(
            f"the algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm}"
        )
    return ALGORITHMS[algorithm]


def _share_moved(moved: np.ndarray, weights: FloatArray) -> FloatArray:
    taking_part = weights > 0
    return (moved & taking_part).sum(axis=-1) / taking_part.sum(axis=-1)


def draw_participants(family: Family, count: int, seed: int) -> Callable[[int], FloatArray]:
    """Server weights that let `count` agents, drawn anew, take part in each round.

    Args:
        family: the MDPs, without batch axes.
        count: K, from 1 to N.
        seed: of the draws; a round's depends on nothing else.

    Returns:
        The weights of a round: q_n of those that take part, scaled to sum to one, else 0.
    """
    if not 1 <= count <= family.agents:
        raise InvalidFamily(
            f"participants must be from 1 to the number of agents, {family.agents}, not {count}"
        )

    def weights(index: int) -> FloatArray:
        rng = np.random.default_rng([seed, index])
        chosen = np.zeros(family.agents)
        chosen[rng.choice(family.agents, count, replace=False)] = 1.0
        taking = chosen * family.weights
        # Agents whose weight in the objective is 0 may be the only ones drawn.
        taking = taking if taking.sum() > 0 else chosen
        return taking / taking.sum()

    return weights
