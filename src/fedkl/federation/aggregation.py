"""From validated updates to the next global model (Algorithm 2, line 11)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import jax
import numpy as np
from jaxtyping import PyTree

from fedkl.learning.state import Model, Update
from fedkl.learning.statistics import Moments, merge


def aggregate(model: Model, updates: Mapping[int, Update]) -> Model:
    """theta^{t+1} = sum_k l_k / L theta_k, with L over the given updates.

    Sums run in float64 and in ascending order of the client's number, so the result does not
    depend on who finished first. Moments are merged exactly instead of averaged.

    Args:
        model: the global model of this round.
        updates: the validated update of each client; none leaves the model as it is.
    """
    if not updates:
        return model
    ordered = [updates[client] for client in sorted(updates)]
    total = sum(float(u.weight) for u in ordered)
    shares = [float(u.weight) / total for u in ordered]

    def average(*parts: np.ndarray) -> np.ndarray:
        terms = [s * np.asarray(p, np.float64) for s, p in zip(shares, parts, strict=True)]
        return np.asarray(sum(terms), dtype=parts[0].dtype)

    def averaged(parts: list[PyTree]) -> PyTree:
        return jax.tree.map(average, *parts)

    return Model(
        policy=averaged([u.model.policy for u in ordered]),
        critic=averaged([u.model.critic for u in ordered]),
        observations=_merged(model.observations, [u.model.observations for u in ordered]),
        rewards=_merged(model.rewards, [u.model.rewards for u in ordered]),
        coefficients=averaged([u.model.coefficients for u in ordered]),
    )


def _merged(known: Moments | None, news: list[Moments | None]) -> Moments | None:
    if known is None:
        return None
    exact = [jax.tree.map(lambda x: np.asarray(x, np.float64), n) for n in news]
    return reduce(merge, exact, known)
