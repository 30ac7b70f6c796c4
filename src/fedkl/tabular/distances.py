"""Distances between distributions, and the span that total variation is dual to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from fedkl.tabular.validation import FloatArray


def total_variation(p: FloatArray, q: FloatArray) -> FloatArray:
    """Half the L1 distance along the last axis.

    For two measures of equal mass, normalised or not, this is the mass that must be moved.
    """
    return 0.5 * abs(p - q).sum(axis=-1)


def kl_divergence(p: FloatArray, q: FloatArray) -> FloatArray:
    """D_KL(p || q) along the last axis; infinite where q misses something that p has."""
    # Rounding may leave a sum of opposite signs just below zero.
    return np.maximum(rel_entr(p, q).sum(axis=-1), 0.0)


def span(x: FloatArray) -> FloatArray:
    """Largest minus smallest along the last axis.

    For vectors d that sum to zero, |<d, x>| <= span(x) * |d|_1 / 2, and the bound is attained.

    Example:
        >>> float(span(np.array([3.0, -1.0, 0.0])))
        4.0
    """
    return x.max(axis=-1) - x.min(axis=-1)


def frobenius(x: FloatArray) -> FloatArray:
    """The Frobenius norm over the last two axes."""
    # Scaled, for where rho is tiny the entries of B are so large that their squares overflow.
    size = abs(x).max(axis=(-2, -1), keepdims=True)
    scaled = x / np.where(size > 0, size, 1.0)
    return size[..., 0, 0] * np.sqrt((scaled**2).sum(axis=(-2, -1)))


def differ(x: FloatArray, y: FloatArray) -> NDArray[np.bool_]:
    """Return True if two policies differ anywhere, over the last two axes."""
    return np.asarray((x != y).any(axis=(-2, -1)))


def inner(x: FloatArray, y: FloatArray) -> FloatArray:
    """The Frobenius inner product, trace(x y^T), over the last two axes."""
    return (x * y).sum(axis=(-2, -1))
