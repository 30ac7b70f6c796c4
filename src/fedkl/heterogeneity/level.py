"""The level of heterogeneity, and G, from clients' measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedkl.heterogeneity.measure import Measurement


class Level(NamedTuple):
    """One client among those who answered.

    A square is estimated by a product of independent halves, so it may come out negative where the
    true one is small; its root then is minus the root of its size.
    """

    advantage_squared: float
    """||D_n A_n||^2."""
    heterogeneity_squared: float
    """||D_n B_n||^2."""
    advantage: float
    """||D_n A_n||, with the sign of its square."""
    heterogeneity: float
    """||D_n B_n||, with the sign of its square."""
    ratio: float
    """||D_n B_n|| / ||D_n A_n||; NaN where the latter is not above 0."""
    learning_potential: float
    """G_n = ||D_n A_n|| - ||D_n B_n||."""
    alignment: float
    """sum_k q_k E_{rho_k, pi}[A_k A_n]: the slope of eta along n's own small step."""


def level(
    measurements: Mapping[int, Measurement], weights: Mapping[int, float] | None = None
) -> dict[int, Level]:
    """Return the level of heterogeneity of each client that answered, among all that answered.

    Args:
        measurements: by client, all in the same basis.
        weights: q_k of these clients, up to a common factor; None: all alike.

    Raises:
        ValueError: the weights are negative or all 0.

    Example:
        Two clients with the same states, of which one has twice the other's advantages.

        >>> def once(x):
        ...     return np.array([[x, 0.0], [x, 0.0]])
        >>> low, high = (Measurement(once(x), once(x), once(x)) for x in (1.0, 2.0))
        >>> found = level({3: low, 8: high})
        >>> found[3].advantage, found[3].heterogeneity, found[8].ratio
        (1.0, 0.5, 0.25)
        >>> found[3].alignment  # (1 + 2) / 2 times 1
        1.5
    """
    clients = sorted(measurements)
    if not clients:
        return {}
    q = np.array([1.0 if weights is None else weights[client] for client in clients])
    if not (q >= 0).all() or not q.sum() > 0:
        raise ValueError(f"weights must be at least 0 and not all 0, not {q.tolist()}")
    q = q / q.sum()
    weighted, expected, fitted = (
        np.stack(
            [np.asarray(getattr(measurements[client], name), np.float64) for client in clients]
        )
        for name in Measurement._fields
    )
    squared = _own(weighted, weighted)
    mean = _with_mean(weighted, weighted, q)
    # |M - D_n A_n|^2, multiplied out.
    apart = squared - 2 * mean + q @ mean
    alignment = _with_mean(fitted, expected, q)
    return {
        client: _level(*numbers)
        for client, *numbers in zip(clients, squared, apart, alignment, strict=True)
    }


def problem_with_measurement(measurement: Measurement, expected: int) -> str | None:
    """Return why a client's answer must not be used, or None if it may.

    Args:
        measurement: as it was received.
        expected: features of the shared basis.
    """
    for name, array in measurement._asdict().items():
        if np.shape(array) != (2, expected):
            return f"{name} has the shape {np.shape(array)}, not {(2, expected)}"
        if not np.all(np.isfinite(array)):
            return f"{name} is not finite"
    return None


def _own(
    left: Float[np.ndarray, "n 2 p"], right: Float[np.ndarray, "n 2 p"]
) -> Float[np.ndarray, " n"]:
    """Return the inner product of each client's left with its own right.

    Of one half and the other, because these are independent.
    """
    return np.einsum("nhp,nhp->n", left, right[:, ::-1]) / 2


def _with_mean(
    left: Float[np.ndarray, "n 2 p"], right: Float[np.ndarray, "n 2 p"], q: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return the inner product of each client's left with the weighted mean of all rights.

    Of two clients, of their means over both halves: these are independent. Nothing is as large as
    the square of the number of clients.
    """
    x, y = left.mean(axis=1), right.mean(axis=1)
    return x @ (q @ y) + q * (_own(left, right) - np.einsum("np,np->n", x, y))


def _level(advantage: float, heterogeneity: float, alignment: float) -> Level:
    da, db = _signed_root(advantage), _signed_root(heterogeneity)
    return Level(
        advantage_squared=float(advantage),
        heterogeneity_squared=float(heterogeneity),
        advantage=da,
        heterogeneity=db,
        ratio=db / da if da > 0 else float("nan"),
        learning_potential=da - db,
        alignment=float(alignment),
    )


def _signed_root(square: float) -> float:
    return float(np.sign(square) * np.sqrt(abs(square)))
