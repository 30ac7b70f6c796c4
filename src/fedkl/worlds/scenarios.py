"""The paper's Reacher federations: who spawns targets where, and whose actions are distorted how.

Each builder returns the params of n clients, stacked; a world reads them and knows nothing else
about heterogeneity.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from fedkl.errors import UserError

FIELD = 0.2  # targets spawn within +-FIELD on both axes
REACH = 0.2  # and are redrawn until they lie closer to the first hinge than REACH
NOISE_KINDS = ("offset", "per_step")
_GRID = 8


class ReacherParams(NamedTuple):
    """What makes one client's Reacher its own.

    Attributes:
        target_low: lower corner of the box in which targets spawn.
        target_high: upper corner of that box.
        action_offset: added to every action.
        action_noise: standard deviation of the fresh normal noise added to every action.
    """

    target_low: Float[Array, "*n 2"]
    target_high: Float[Array, "*n 2"]
    action_offset: Float[Array, "*n 2"]
    action_noise: Float[Array, "*n"]


def iid(n: int) -> ReacherParams:
    """Clients that are all alike: targets in the whole field, actions undistorted.

    Args:
        n: how many clients.

    Returns:
        The stacked params.

    Example:
        >>> iid(3).target_high.shape
        (3, 2)
    """
    _check_count(n)
    field = np.full((n, 2), FIELD)
    return _stacked(-field, field)


def initial_states(n: int = 60) -> ReacherParams:
    """Clients whose targets always spawn in their own square of the field (the paper's Q = 60).

    The field is cut into 8 x 8 squares of 0.05, and the four corners are left out because no
    target can spawn there. Fewer than 60 clients take squares that cover the whole field evenly;
    with more than 60, client i shares the square of client i - 60.

    Args:
        n: how many clients.

    Returns:
        The stacked params.

    Example:
        >>> initial_states(60).target_low.shape
        (60, 2)
    """
    _check_count(n)
    corners = _squares()
    count = len(corners)
    i = np.arange(n)
    # The middles of n equal pieces of the curve of squares; for n = count it is client i, square i.
    chosen = i % count if n > count else (2 * i + 1) * count // (2 * n)
    side = 2 * FIELD / _GRID
    return _stacked(corners[chosen] * side - FIELD, (corners[chosen] + 1) * side - FIELD)


def action_noise(
    n: int,
    scale: float | Float[Array, ""] = 0.4,
    kind: str = "offset",
    key: PRNGKeyArray | None = None,
) -> ReacherParams:
    """Clients whose dynamics differ, by noise on their actions.

    Args:
        n: how many clients.
        scale: the standard deviation of the noise. The paper's text calls its 0.4 a variance; the
            authors' code uses it as a standard deviation, and so do we.
        kind: `offset` draws one offset per client and action entry, clipped to +-1, and adds it to
            every action, as the authors' code does; `per_step` adds fresh noise at every step, as
            the text can be read.
        key: draws the offsets (not used by `per_step`, whose noise comes from the steps' keys);
            that of seed 0 if there is none.

    Returns:
        The stacked params.

    Example:
        >>> action_noise(3, 0.4, "per_step", jax.random.key(0)).action_noise.tolist()
        ... # doctest: +ELLIPSIS
        [0.4..., 0.4..., 0.4...]
    """
    return _add_noise(iid(n), scale, kind, key)


def both(
    n: int,
    scale: float | Float[Array, ""] = 0.4,
    kind: str = "offset",
    key: PRNGKeyArray | None = None,
) -> ReacherParams:
    """Clients with their own square of targets and their own noise on actions.

    Args:
        n: how many clients, placed as by `initial_states`.
        scale, kind, key: as for `action_noise`; the same key draws the same offsets.

    Returns:
        The stacked params.
    """
    return _add_noise(initial_states(n), scale, kind, key)


def _stacked(low: np.ndarray, high: np.ndarray) -> ReacherParams:
    """Undistorted clients with these boxes; by NumPy, so that no new n makes XLA compile."""
    dtype = jnp.result_type(float)
    leaves = (low, high, np.zeros_like(low), np.zeros(len(low)))
    return ReacherParams(*(jnp.asarray(leaf, dtype) for leaf in leaves))


def _add_noise(
    clients: ReacherParams, scale: float | Float[Array, ""], kind: str, key: PRNGKeyArray | None
) -> ReacherParams:
    if kind not in NOISE_KINDS:
        raise UserError(f"the kind of action noise must be offset or per_step, not {kind!r}")
    # A traced scale has no value to look at; the setting that it comes from is checked already.
    if not isinstance(scale, jax.core.Tracer) and not 0 <= scale < float("inf"):
        raise UserError(f"the scale of action noise must be a finite number >= 0, not {scale}")
    zero = clients.action_offset
    if kind == "per_step":
        return clients._replace(action_noise=zero[:, 0] + scale)
    key = jax.random.key(0) if key is None else key
    offset = scale * jax.random.normal(key, zero.shape, zero.dtype)
    return clients._replace(action_offset=jnp.clip(offset, -1.0, 1.0))


def _squares() -> np.ndarray:
    """The (column, row) of the squares that a target can spawn in, along a Z-order curve.

    Equal pieces of that curve are compact patches of the field, so an evenly spaced choice of
    squares covers the field; in row order, strides of 4 or 8 would leave whole columns out.
    """
    z = np.arange(_GRID * _GRID)
    column, row = (sum(((z >> 2 * b + axis) & 1) << b for b in range(3)) for axis in (0, 1))
    edge = (0, _GRID - 1)
    corner = np.isin(column, edge) & np.isin(row, edge)
    return np.stack([column, row], axis=1)[~corner]


def _check_count(n: int) -> None:
    if n < 1:
        raise UserError(f"a federation needs at least one client, not {n}")
