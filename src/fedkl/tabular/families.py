"""Families to compute on: random ones, a windy grid, and a chain.

What differs between the agents, and how much, is an argument of each.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from fedkl.tabular.family import Family
from fedkl.tabular.validation import FloatArray, InvalidFamily

Heterogeneity = Literal["none", "mu", "P", "R", "all"]

_LEAST_CONCENTRATION = 1e-6  # far below it logarithms overflow; here all is deterministic already


def random(
    *,
    agents: int,
    states: int,
    actions: int,
    gamma: float,
    seed: int,
    heterogeneity: Heterogeneity = "all",
    level: float = 1.0,
    concentration: float = 1.0,
) -> Family:
    """A family with random dynamics, rewards and initial distributions.

    Every part is a mixture of one drawn for all agents and one drawn for each; parts in which the
    agents do not differ are the common one. The draws do not depend on `heterogeneity` or `level`,
    so families of one seed can be compared.

    Args:
        agents: N.
        states: |S|.
        actions: |A|.
        gamma: the discount.
        seed: of all draws.
        heterogeneity: what differs: the initial distributions (mu), the transitions (P), the
            rewards (R), all of them, or none.
        level: the share of an agent's own draw in what differs, from 0 (alike) to 1 (independent).
        concentration: of the Dirichlet distribution of the transitions; small ones are close to
            deterministic, large ones close to uniform.

    Returns:
        One family; rewards are standard normal draws, weights are equal.
    """
    if heterogeneity not in get_args(Heterogeneity):
        raise InvalidFamily(
            f"heterogeneity must be one of {', '.join(get_args(Heterogeneity))}, "
            f"not {heterogeneity}"
        )
    _check_sizes(agents=agents, states=states, actions=actions)
    _check_probability("level", level)
    if not _LEAST_CONCENTRATION <= concentration < np.inf:
        raise InvalidFamily(
            f"concentration must be finite and at least {_LEAST_CONCENTRATION:g}, "
            f"not {concentration:g}"
        )
    if seed < 0:
        raise InvalidFamily(f"the seed must be at least 0, not {seed}")
    rng = np.random.default_rng(seed)

    def mixed(what: Heterogeneity, draws: FloatArray) -> FloatArray:
        common, own = draws[0], draws[1:]
        share = level if heterogeneity in (what, "all") else 0.0
        return (1 - share) * common + share * own

    return Family(
        initial=mixed("mu", rng.dirichlet(np.ones(states), (agents + 1,))),
        transitions=mixed(
            "P", dirichlet(rng, concentration, (agents + 1, states, actions, states))
        ),
        rewards=mixed("R", rng.standard_normal((agents + 1, states, actions))),
        gamma=gamma,
    )


def windy_grid(
    *,
    agents: int,
    rows: int = 4,
    columns: int = 5,
    gamma: float = 0.9,
    level: float = 1.0,
    slip: float = 0.1,
) -> Family:
    """A grid with a goal, and a wind over its middle columns that blows differently for each agent.

    A move goes one cell up, down, left or right, or with probability `slip` in any direction; then
    the wind may carry on by one cell. Agent n's wind blows with probability |w_n|, upwards where
    w_n > 0 and downwards where w_n < 0; the w_n are spread evenly from -level to level, so that
    what is right for the first agent is wrong for the last. The goal, in the middle of the right
    edge, pays 1 when it is entered and is not left again. Episodes start anywhere.

    Args:
        agents: N.
        rows: of the grid.
        columns: of the grid.
        gamma: the discount.
        level: the strongest wind, from 0 (no wind, all agents alike) to 1.
        slip: the probability of a move in a random direction.

    Returns:
        One family of rows * columns states and the actions up, down, left and right.
    """
    _check_sizes(agents=agents, rows=rows, columns=columns)
    _check_probability("level", level)
    _check_probability("slip", slip)
    S = rows * columns
    goal = (rows // 2) * columns + columns - 1
    row, column = np.divmod(np.arange(S), columns)

    def moved(down: int, right: int) -> FloatArray:
        to = np.clip(row + down, 0, rows - 1) * columns + np.clip(column + right, 0, columns - 1)
        return np.eye(S)[to]

    moves = np.stack([moved(-1, 0), moved(1, 0), moved(0, -1), moved(0, 1)], axis=1)  # [S, A, S]
    moves = (1 - slip) * moves + slip * moves.mean(axis=1, keepdims=True)
    windy = ((column > 0) & (column < columns - 1))[:, None]
    winds = level * np.linspace(-1, 1, agents) if agents > 1 else np.array([level])
    transitions = []
    for wind in winds:
        carried = moved(-1, 0) if wind > 0 else moved(1, 0)
        gust = np.where(windy, (1 - abs(wind)) * np.eye(S) + abs(wind) * carried, np.eye(S))
        P = moves @ gust
        P[goal] = np.eye(S)[goal]
        transitions.append(P)
    rewards = np.stack([P[:, :, goal] for P in transitions])
    rewards[:, goal] = 0.0
    return Family(np.full((agents, S), 1.0 / S), np.stack(transitions), rewards, gamma)


def chain(
    *,
    agents: int,
    states: int = 6,
    gamma: float = 0.9,
    level: float = 1.0,
) -> Family:
    """A chain with a small reward at its left end and a large one at its right end.

    `left` always succeeds. `right` succeeds with a probability that differs by agent: spread evenly
    over 0.6 - 0.3 level to 0.6 + 0.3 level; where it fails, the agent stays. Being at the left
    end pays 0.1, at the right end 1. Episodes start at the left end: under a policy that always
    goes left nothing else is reachable.

    Args:
        agents: N.
        states: the length of the chain, at least 2.
        gamma: the discount.
        level: how far the agents differ, from 0 (alike) to 1.

    Returns:
        One family with the actions left and right.
    """
    _check_sizes(agents=agents)
    if states < 2:
        raise InvalidFamily(f"a chain needs at least 2 states, not {states}")
    _check_probability("level", level)
    success = 0.6 + 0.3 * level * (np.linspace(-1, 1, agents) if agents > 1 else np.zeros(1))
    place = np.arange(states)
    left, stay = np.eye(states)[np.maximum(place - 1, 0)], np.eye(states)
    right = np.eye(states)[np.minimum(place + 1, states - 1)]
    transitions = np.stack([np.stack([left, p * right + (1 - p) * stay], axis=1) for p in success])
    rewards = np.zeros((agents, states, 2))
    rewards[:, 0], rewards[:, -1] = 0.1, 1.0
    initial = np.broadcast_to(np.eye(states)[0], (agents, states))
    return Family(initial, transitions, rewards, gamma)


def averaged(family: Family) -> Family:
    """The one MDP whose initial distribution, dynamics and rewards are the weighted averages."""

    def average(array: FloatArray) -> FloatArray:
        weights = family.weights.reshape(
            family.weights.shape + (1,) * (array.ndim - family.weights.ndim)
        )
        return (weights * array).sum(axis=len(family.batch), keepdims=True)

    return Family(
        average(family.initial), average(family.transitions), average(family.rewards), family.gamma
    )


def dirichlet(rng: np.random.Generator, concentration: float, shape: tuple[int, ...]) -> FloatArray:
    """Symmetric Dirichlet draws along the last axis, for small concentrations too."""
    # Gamma(a) is Gamma(a + 1) U^(1/a): in logarithms nothing underflows before it is normalised.
    logs = np.log(rng.standard_gamma(concentration + 1, shape))
    logs += np.log1p(-rng.random(shape)) / concentration
    logs -= logs.max(axis=-1, keepdims=True)
    weights = np.exp(logs)
    return weights / weights.sum(axis=-1, keepdims=True)


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InvalidFamily(f"a family needs at least one of {name}, not {size}")


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InvalidFamily(f"{name} must be between 0 and 1, not {value}")
