"""Pytrees as named arrays: the one form in which state is saved and updates are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import jax
import numpy as np
from jaxtyping import Float, PyTree

T = TypeVar("T")

AnyArray = jax.Array | np.ndarray
"""JAX's inside compiled code, NumPy's outside of it and on the server."""

if TYPE_CHECKING:
    Array = jax.Array
else:
    # An entry of an array has no type of its own for a checker.
    AnyArray |= np.generic
    # What JAX computes with may come as NumPy's; mypy need not know.
    Array = AnyArray

Scalar = float | Float[AnyArray, ""]
"""A number: a setting as it is in a config, or the same inside compiled code."""


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Name every leaf by its path in the tree.

    Example:
        >>> to_arrays({"a": {"b": 1.5}})
        {'a.b': array(1.5)}
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def from_arrays(template: T, arrays: Mapping[str, np.ndarray]) -> T:
    """Make the tree with the structure of `template` and the leaves of `arrays`.

    Raises:
        ValueError: a leaf is missing, superfluous, or of another shape or dtype; the message names
            it.
    """
    expected = to_arrays(template)
    if problem := mismatch(expected, arrays):
        raise ValueError(problem)
    structure = jax.tree.structure(template)
    return jax.tree.unflatten(structure, [arrays[name] for name in expected])


def mismatch(expected: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]) -> str | None:
    """Say what is wrong with the names, shapes and dtypes of `arrays`, or None."""
    for name in sorted(expected.keys() | arrays.keys()):
        if name not in arrays:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is not expected"
        want, have = expected[name], arrays[name]
        if want.shape != have.shape or want.dtype != have.dtype:
            return (
                f"{name} is {have.dtype} of shape {have.shape}, "
                f"not {want.dtype} of shape {want.shape}"
            )
    return None


def size_in_bytes(tree: PyTree) -> int:
    """The number of bytes that the leaves take."""
    return sum(array.nbytes for array in to_arrays(tree).values())


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
