"""From a policy's own units to those of an environment: vectors in [-1, 1] to the limits of a box,
numbers that begin with 0 to the environment's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import add, array, float32, fmax, fmin, isfinite, multiply

from fedkl.core.errors import UserError

if TYPE_CHECKING:
    from gymnasium.spaces import Space


class Box(NamedTuple):
    """Continuous actions of an environment."""

    low: tuple[float, ...]
    """Of each entry; -inf and inf where there is no limit."""
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """The number of entries of an action."""
        return len(self.low)

    @classmethod
    def unlimited(cls, size: int) -> Box:
        """Return a box without limits."""
        return cls((-math.inf,) * size, (math.inf,) * size, (size,))


class Numbers(NamedTuple):
    """Discrete actions of an environment."""

    size: int
    """The number of actions."""
    first: int = 0
    dtype: str = "int64"


class Spaces(NamedTuple):
    """The input and the output of a policy."""

    observation_size: int
    actions: Box | Numbers


class BoxAction:
    """A map from a policy's vectors, in which [-1, 1] is the full range, into a box."""

    def __init__(self, box: Box) -> None:
        """Leave entries as they are that the box does not limit on both sides."""
        low, high = (np.asarray(limits, box.dtype) for limits in (box.low, box.high))
        bounded = isfinite(low) & isfinite(high)
        with np.errstate(invalid="ignore"):
            self.scale = np.where(bounded, (high - low) / 2, 1).astype(box.dtype)
            self.centre = np.where(bounded, (high + low) / 2, 0).astype(box.dtype)
        self.low, self.high = low, high
        self._one: list[tuple[np.ufunc, np.ndarray]] = [(fmin, high), (fmax, low)]
        # Most spaces have their centre in 0, and many go from -1 to 1.
        if (self.centre != 0).any():
            self._one.insert(0, (add, self.centre))
        if (self.scale != 1).any():
            self._one.insert(0, (multiply, self.scale))
        self._for: tuple[int, ...] = ()
        self._shape = None if len(box.shape) == 1 else box.shape

    def __call__(self, action: Float[np.ndarray, "*c a"]) -> Float[np.ndarray, "*c_and_shape"]:
        """Return an action, or several, within the limits; NaN becomes one of them."""
        if action.shape != self._for:
            # Calls that broadcast take far longer.
            each = [(f, np.broadcast_to(x, action.shape).copy()) for f, x in self._one]
            (self._first, self._by), *self._others = each
            self._for = action.shape
        scaled = self._first(action, self._by)
        for function, by in self._others:
            function(scaled, by, scaled)
        return scaled if self._shape is None else scaled.reshape(*action.shape[:-1], *self._shape)


class DiscreteAction:
    """A map from a policy's whole numbers, which begin with 0, to those of an environment."""

    def __init__(self, numbers: Numbers) -> None:
        self._start = numbers.first
        self._dtype = np.dtype(numbers.dtype)

    def __call__(self, action: Any) -> Any:
        """Return the environment's number of an action, or of several."""
        return (action + self._start if self._start else action).astype(self._dtype, copy=False)


def actuator(actions: Box | Numbers) -> BoxAction | DiscreteAction:
    """Return the map from a policy's actions to those of an environment."""
    return BoxAction(actions) if isinstance(actions, Box) else DiscreteAction(actions)


OBSERVATIONS = (
    "fedkl takes vectors (Box), Discrete, MultiDiscrete and MultiBinary observations, and Dict or "
    "Tuple of them"
)
ACTIONS = "fedkl takes Box actions of real numbers, and Discrete ones"


class ObservationFlattener:
    """A map from an environment's observations to vectors."""

    def __init__(self, space: Space[Any], who: str) -> None:
        """Args:
        space: of the observations.
        who: whose they are, for messages.

        Raises:
            UserError: there are no vectors in it.
        """
        from gymnasium import spaces

        if problem := _no_vectors(space):
            raise UserError(f"{who} has {problem} observations ({space}), and {OBSERVATIONS}")
        self._space = space
        self._who = who
        self._shape = space.shape if isinstance(space, spaces.Box) else None
        self.plain = self._shape is not None and len(self._shape) == 1
        """True if observations are vectors as they are."""
        self._flatten = spaces.flatten
        self.size: int = spaces.flatdim(space)

    def __call__(self, observation: Any) -> Float[np.ndarray, " o"]:
        """Return a vector of its own, which the environment cannot change any more.

        Raises:
            UserError: the observation is not of the space, or not finite.
        """
        if self._shape is None:
            if not self._space.contains(observation):
                raise UserError(f"{self._who} returned an observation that is not in its space")
            observation = self._flatten(self._space, observation)
        seen = array(observation, float32)
        if self._shape is not None and seen.shape != self._shape:
            raise UserError(
                f"{self._who} returned an observation of shape {seen.shape}, and its space says "
                f"{self._shape}"
            )
        if not isfinite(seen).all():
            raise UserError(f"{self._who} returned an observation that is not finite")
        return seen.reshape(self.size)


def actions_of(space: Space[Any], who: str) -> Box | Numbers:
    """Return the actions of a space.

    Raises:
        UserError: it cannot act there.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Numbers(int(space.n), int(space.start), str(space.dtype))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(limits.ravel().tolist()) for limits in (space.low, space.high))
        return Box(low, high, space.shape, str(space.dtype))
    kind = type(space).__name__
    if isinstance(space, spaces.Box):
        kind = f"{space.dtype} {kind}"
    raise UserError(f"{who} has {kind} actions ({space}), and {ACTIONS}")


def actuator_of(space: Space[Any], who: str) -> BoxAction | DiscreteAction:
    """Return the map from a policy's actions to those of a space.

    Raises:
        UserError: a policy cannot act in it.
    """
    return actuator(actions_of(space, who))


def _no_vectors(space: Space[Any]) -> str:
    """Return the kind of an observation that is no vector nor made of vectors; else empty."""
    from gymnasium import spaces

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
