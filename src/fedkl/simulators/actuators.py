"""From a policy's own units to those of an environment: vectors in [-1, 1] to the limits of a box,
numbers that begin with 0 to the environment's."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import add, fmax, fmin, isfinite, multiply


class Box(NamedTuple):
    """Continuous actions of an environment."""

    low: tuple[float, ...]
    """Of each entry; -inf and inf where there is no limit."""
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Entries of an action."""
        return len(self.low)

    @classmethod
    def unlimited(cls, size: int) -> Box:
        """Vectors that are left as they are."""
        return cls((-math.inf,) * size, (math.inf,) * size, (size,))


class Numbers(NamedTuple):
    """Discrete actions of an environment."""

    size: int
    """How many there are."""
    first: int = 0
    dtype: str = "int64"


class Motor:
    """Turns a policy's vectors, in which [-1, 1] is all that motors can do, into those of a box."""

    def __init__(self, box: Box) -> None:
        """Entries that the box does not limit on both sides are left as they are."""
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
        """An action, or several, within the limits; what is not a number becomes one of them."""
        if action.shape != self._for:
            # Calls that broadcast take far longer.
            each = [(f, np.broadcast_to(x, action.shape).copy()) for f, x in self._one]
            (self._first, self._by), *self._others = each
            self._for = action.shape
        scaled = self._first(action, self._by)
        for function, by in self._others:
            function(scaled, by, scaled)
        return scaled if self._shape is None else scaled.reshape(*action.shape[:-1], *self._shape)


class Buttons:
    """Turns a policy's whole numbers, which begin with 0, into those of an environment."""

    def __init__(self, numbers: Numbers) -> None:
        self._start = numbers.first
        self._dtype = np.dtype(numbers.dtype)

    def __call__(self, action: Any) -> Any:
        """The environment's number of an action, or of several."""
        return (action + self._start if self._start else action).astype(self._dtype, copy=False)


def actuator(actions: Box | Numbers) -> Motor | Buttons:
    """What turns a policy's actions into those of an environment."""
    return Motor(actions) if isinstance(actions, Box) else Buttons(actions)
