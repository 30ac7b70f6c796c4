"""Gymnasium's spaces as fedkl's policies see them: observations are vectors, actions are vectors in
[-1, 1] or whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float
from numpy import add, array, float32, fmax, fmin, isfinite, multiply

from fedkl.errors import UserError

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


class Motor:
    """Turns a policy's vectors, in which [-1, 1] is all that motors can do, into those of a Box."""

    def __init__(self, space: spaces.Box) -> None:
        """Entries that the space does not bound on both sides are left as they are."""
        self._low, self._high = space.low.ravel(), space.high.ravel()
        bounded = isfinite(self._low) & isfinite(self._high)
        with np.errstate(invalid="ignore"):
            scale = np.where(bounded, (self._high - self._low) / 2, 1)
            centre = np.where(bounded, (self._high + self._low) / 2, 0)
        self._scale, self._centre = scale.astype(space.dtype), centre.astype(space.dtype)
        self._shape = None if len(space.shape) == 1 else space.shape

    def __call__(self, action: Float[np.ndarray, "*c a"]) -> Float[np.ndarray, "*c_and_shape"]:
        """An action, or several, within the limits; what is not a number becomes one of them."""
        scaled = multiply(action, self._scale)
        add(scaled, self._centre, scaled)
        fmin(scaled, self._high, scaled)
        fmax(scaled, self._low, scaled)
        return scaled if self._shape is None else scaled.reshape(*action.shape[:-1], *self._shape)


class Buttons:
    """Turns a policy's whole numbers, which begin with 0, into those of a Discrete space."""

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)
        self._dtype = space.dtype

    def __call__(self, action: Any) -> Any:
        """The number in the space of an action, or of several."""
        return (action + self._start).astype(self._dtype)


def acting(space: spaces.Space[Any], who: str) -> Motor | Buttons:
    """What turns actions into those of a space.

    Raises:
        UserError: a policy cannot act in it.
    """
    if isinstance(space, spaces.Discrete):
        return Buttons(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Motor(space)
    kind = type(space).__name__
    if isinstance(space, spaces.Box):
        kind = f"{space.dtype} {kind}"
    raise UserError(f"{who} has {kind} actions ({space}), and {ACTIONS}")


def size_of(space: spaces.Space[Any]) -> tuple[bool, int]:
    """Whether actions of a space are whole numbers; how many there are, or entries of a vector."""
    if isinstance(space, spaces.Discrete):
        return True, int(space.n)
    return False, int(np.prod(space.shape or ()))


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
