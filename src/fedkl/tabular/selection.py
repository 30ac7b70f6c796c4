"""Selection of the agents of a round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedkl.tabular.family import Family
from fedkl.tabular.validation import FloatArray, InvalidFamily


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
