"""Checks that arrays are families, policies and weights, with messages that say where not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkl.core.errors import UserError

FloatArray = NDArray[np.float64]

# How far a distribution may be from summing to one: what rounding in a user's own code leaves.
_SUM_TOLERANCE = 1e-9
_LEAST_HORIZON = 1e-8  # the smallest 1 - gamma


class InvalidFamily(UserError, ValueError):  # noqa: N818 - it is named for what is wrong
    """Arrays that are no family of MDPs, or no policy for it; the message says where and why."""


def as_array(name: str, value: Any, axes: int, first: str = "agent") -> FloatArray:
    """A float64 copy of something array-like.

    Args:
        name: what it is called in a message.
        value: the numbers.
        axes: how many there must be at least; none may be empty.
        first: what the first axis of nested lists counts, in a message.
    """
    try:
        if np.asarray(value).dtype.kind not in "fiub":
            raise TypeError("text, objects or complex numbers")
        array = np.array(value, dtype=np.float64)
    except (ValueError, TypeError) as error:
        shapes = [np.shape(part) for part in value] if _shapes_differ(value) else []
        for index, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise InvalidFamily(
                    f"{first} {index}: {name} must have the shape {shapes[0]} of {first} 0, "
                    f"not {shape}"
                ) from error
        raise InvalidFamily(f"{name} does not consist of numbers") from error
    if array.ndim < axes or 0 in array.shape:
        raise InvalidFamily(
            f"{name} needs {axes} axes that are not empty, not the shape {array.shape}"
        )
    return array


def _shapes_differ(value: Any) -> bool:
    """Return True if a list of arrays is no array because they differ in shape."""
    try:
        return len({np.shape(part) for part in value}) > 1
    except (ValueError, TypeError):
        return False


def check_discount(value: Any, batch: tuple[int, ...]) -> FloatArray:
    """Gamma, which must lie in (0, 1) and be one number or one for each of a batch, [...]."""
    gamma = as_array("gamma", value, axes=0, first="family")
    if not ((gamma > 0) & (gamma < 1)).all():
        raise InvalidFamily(f"gamma must be a number strictly between 0 and 1, not {gamma}")
    if gamma.shape not in ((), batch):
        raise InvalidFamily(f"gamma must be one number or have the shape {batch} of the batch")
    if (gamma > 1 - _LEAST_HORIZON).any():
        raise InvalidFamily(
            f"gamma must be at most 1 - {_LEAST_HORIZON:g}, not {gamma}: beyond that rounding "
            "drowns what is computed"
        )
    return np.broadcast_to(gamma, batch)


def check_finite(name: str, array: FloatArray, axes: tuple[str, ...]) -> None:
    """Raise an error if a number is not finite; `axes` are names of the last axes."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = np.argwhere(bad)[0]
        raise InvalidFamily(
            f"{place(where, axes)}: {name} must be finite, not {array[tuple(where)]}"
        )


def check_distributions(name: str, array: FloatArray, axes: tuple[str, ...], over: str) -> None:
    """Every vector along the last axis must be finite, non-negative, and sum to one."""
    check_finite(name, array, (*axes, over))
    if (array < 0).any():
        where = np.argwhere(array < 0)[0]
        value = array[tuple(where)]
        raise InvalidFamily(
            f"{place(where, (*axes, over))}: {name} must not be negative: {value:g}"
        )
    sums = array.sum(axis=-1)
    bad = abs(sums - 1) > _SUM_TOLERANCE
    if bad.any():
        where = np.argwhere(bad)[0]
        total = sums[tuple(where)]
        at = f"{place(where, axes)}: " if where.size else ""
        raise InvalidFamily(f"{at}{name} must sum to 1 over {over}s, not to {total:.10g}")


def place(where: NDArray[np.intp], axes: tuple[str, ...]) -> str:
    """Describe an index, of which the first numbers are those of a batch."""
    extra = len(where) - len(axes)
    batch = [f"family {', '.join(str(i) for i in where[:extra])}"] if extra else []
    named = [f"{axis} {i}" for axis, i in zip(axes, where[extra:], strict=True)]
    return ", ".join(batch + named)
