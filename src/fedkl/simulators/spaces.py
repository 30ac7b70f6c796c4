"""Gymnasium's spaces as fedkl's policies see them: observations are vectors, actions are vectors in
[-1, 1] or whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float
from numpy import array, float32, isfinite

from fedkl.errors import UserError
from fedkl.simulators.actuators import Box, Buttons, Motor, Numbers, actuator

OBSERVATIONS = (
    "fedkl takes vectors (Box), Discrete, MultiDiscrete and MultiBinary observations, and Dict or "
    "Tuple of them"
)
ACTIONS = "fedkl takes Box actions of real numbers, and Discrete ones"


class Sight:
    """Turns an environment's observations into vectors."""

    def __init__(self, space: spaces.Space[Any], who: str) -> None:
        """Args:
        space: of the observations.
        who: whose they are, for messages.

        Raises:
            UserError: there are no vectors in it.
        """
        if problem := _no_vectors(space):
            raise UserError(f"{who} has {problem} observations ({space}), and {OBSERVATIONS}")
        self._space = space
        self._who = who
        self._shape = space.shape if isinstance(space, spaces.Box) else None
        self.plain = self._shape is not None and len(self._shape) == 1
        """Whether observations are vectors as they are."""
        self.size: int = spaces.flatdim(space)

    def __call__(self, observation: Any) -> Float[np.ndarray, " o"]:
        """A vector of its own, which the environment cannot change any more.

        Raises:
            UserError: the observation is not of the space, or not finite.
        """
        if self._shape is None:
            if not self._space.contains(observation):
                raise UserError(f"{self._who} returned an observation that is not in its space")
            observation = spaces.flatten(self._space, observation)
        seen = array(observation, float32)
        if self._shape is not None and seen.shape != self._shape:
            raise UserError(
                f"{self._who} returned an observation of shape {seen.shape}, and its space says "
                f"{self._shape}"
            )
        if not isfinite(seen).all():
            raise UserError(f"{self._who} returned an observation that is not finite")
        return seen.reshape(self.size)


def actions_of(space: spaces.Space[Any], who: str) -> Box | Numbers:
    """What a policy does in a space.

    Raises:
        UserError: it cannot act there.
    """
    if isinstance(space, spaces.Discrete):
        return Numbers(int(space.n), int(space.start), str(space.dtype))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(limits.ravel().tolist()) for limits in (space.low, space.high))
        return Box(low, high, space.shape, str(space.dtype))
    kind = type(space).__name__
    if isinstance(space, spaces.Box):
        kind = f"{space.dtype} {kind}"
    raise UserError(f"{who} has {kind} actions ({space}), and {ACTIONS}")


def acting(space: spaces.Space[Any], who: str) -> Motor | Buttons:
    """What turns actions into those of a space.

    Raises:
        UserError: a policy cannot act in it.
    """
    return actuator(actions_of(space, who))


def _no_vectors(space: spaces.Space[Any]) -> str:
    """What an observation is, if it is not a vector nor made of vectors."""
    if isinstance(space, spaces.Box):
        image = len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)
        return "image" if image else ""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return ""
    if isinstance(space, spaces.Dict):
        return next(filter(None, map(_no_vectors, space.spaces.values())), "")
    if isinstance(space, spaces.Tuple):
        return next(filter(None, map(_no_vectors, space.spaces)), "")
    return type(space).__name__
