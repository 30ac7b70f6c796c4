"""Quantities of an environment that a parameter may set."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

SMALL = 1e-3
"""The least mass or length: nothing may be divided by 0."""


RAW = ("make.", "attribute.", "model.")
"""Prefixes of raw names: arguments of the environment's constructor, its attributes, and arrays of
its MuJoCo model, which no parameter is for."""


class Quantity(NamedTuple):
    """Something in an environment that may be changed."""

    nominal: float | tuple[float, ...]
    """Its value as the environment is made."""
    help: str
    low: float = -math.inf
    high: float = math.inf
    """Inclusive limits."""
    whole: bool = False
    """True if it must be a whole number."""


def quantity_of(value: Any, help: str) -> Quantity | None:
    """Return a number or an array of numbers as it is now; None for anything else."""
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        return None
    if value is None or array.dtype.kind not in "biuf" or array.size == 0:
        return None
    whole = array.dtype.kind != "f"
    if array.ndim == 0:
        return Quantity(float(array), help, whole=whole)
    return Quantity(tuple(float(x) for x in array.ravel()), help, whole=whole)
