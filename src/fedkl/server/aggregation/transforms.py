"""Transforms of each client's move, before the moves are reduced."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fedkl.core.settings import setting
from fedkl.server.aggregation.base import Transform, register_transform


@register_transform
class Clip(Transform):
    """Shortens a long move and keeps its direction, so that no client moves the model further
    than others may (Sun et al. 2019, norm thresholding of updates)."""

    name: ClassVar[str] = "clip"
    summary: ClassVar[str] = "a move longer than max_norm is shortened to it"

    max_norm: float = setting(
        1.0, "longest move of a part of the model (policy or critic), as a norm", above=0
    )

    def __call__(self, move: Float[np.ndarray, " p"], key: PRNGKeyArray) -> Float[np.ndarray, " p"]:
        norm = float(np.linalg.norm(move))
        return move if norm <= self.max_norm else move * (self.max_norm / norm)
