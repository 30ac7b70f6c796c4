"""Parameters of Reacher: where targets spawn and the fingertip starts, and distortions of actions.

The parameters are those of the paper's federations: with `initial_state = { boxes = 60 }` every
client has its own square of the field (the paper's Q = 60), and a normal `action_noise` distorts
actions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from fedkl.core.errors import UserError
from fedkl.worlds.heterogeneous import TABLE
from fedkl.worlds.parameters import INITIAL_STATE, Parameter

FIELD = 0.2  # targets spawn within +-FIELD on both axes
REACH = 0.2  # and are redrawn until they lie closer to the first hinge than REACH
NEAREST = 0.02  # nearer to it the fingertip cannot come: the second joint stops at 3 rad
_MOST_ACROSS = 100


class ReacherParams(NamedTuple):
    """One client's Reacher, or those of n clients.

    Attributes:
        target_low: lower corner of the box in which targets spawn.
        target_high: upper corner of that box.
        action_offset: added to every action.
        action_noise: standard deviation of the fresh normal noise added to every action.
        fingertip_low: lower corner of the box in which the fingertip starts; None: stretched arms.
        fingertip_high: upper corner of that box.
    """

    target_low: Float[Array, "*n 2"]
    target_high: Float[Array, "*n 2"]
    action_offset: Float[Array, "*n 2"]
    action_noise: Float[Array, "*n"]
    fingertip_low: Float[Array, "*n 2"] | None = None
    fingertip_high: Float[Array, "*n 2"] | None = None


PARAMETERS = (
    Parameter("target_low", (-FIELD,) * 2, -FIELD, FIELD, "lower corner of where targets spawn"),
    Parameter("target_high", (FIELD,) * 2, -FIELD, FIELD, "upper corner of where targets spawn"),
    Parameter("action_offset", (0.0,) * 2, help="added to every action"),
    Parameter("action_noise", 0.0, 0.0, help="deviation of fresh noise on every action"),
    INITIAL_STATE,
)
FINGERTIP_PARAMETERS = (
    Parameter(
        "fingertip_low", (-FIELD,) * 2, -FIELD, FIELD, "lower corner of where fingertips start"
    ),
    Parameter(
        "fingertip_high", (FIELD,) * 2, -FIELD, FIELD, "upper corner of where fingertips start"
    ),
)


def squares(number: int) -> tuple[Float[np.ndarray, "b 2"], Float[np.ndarray, "b 2"]]:
    """Return the squares of the field within the arm's reach, if there are so many of one size.

    The field is cut into 1, 4, 9, ... equal squares, and those are left out that lie wholly out of
    reach: of 8 x 8 the four corners, which leaves the paper's Q = 60. They come along a Z-order
    curve: equal pieces of it are compact patches of the field, so that an even choice of squares
    covers the field; in row order, strides of 4 or 8 would leave whole columns out.

    Args:
        number: how many.

    Returns:
        Their lower and upper corners.

    Raises:
        UserError: no grid has so many squares within reach.

    Example:
        >>> squares(4)[0].tolist()
        [[-0.2, -0.2], [0.0, -0.2], [-0.2, 0.0], [0.0, 0.0]]
    """
    possible = []
    for across in range(1, _MOST_ACROSS + 1):
        side = 2 * FIELD / across
        cells = _z_order(across)
        low, high = cells * side - FIELD, (cells + 1) * side - FIELD
        within = reachable(low, high)
        possible.append(int(within.sum()))
        if possible[-1] == number:
            return low[within], high[within]
        if possible[-1] > number:
            break
    below, above = possible[-2:]
    raise UserError(
        f"{TABLE}.initial_state: the reachable field cannot be cut into {number} boxes, but into "
        f"{below} or {above}"
    )


def reachable(low: Float[np.ndarray, "n 2"], high: Float[np.ndarray, "n 2"]) -> np.ndarray:
    """Return True for each box of which some point is within reach."""
    return np.linalg.norm(np.clip(0.0, low, high), axis=1) < REACH


def check_boxes(params: ReacherParams) -> None:
    """Check that targets and fingertips of all clients can be in their boxes.

    Raises:
        UserError: names a client whose box is out of reach.
    """
    _check_reach("targets", params.target_low, params.target_high)
    if params.fingertip_low is None or params.fingertip_high is None:
        return
    _check_reach("the fingertip", params.fingertip_low, params.fingertip_high)
    low, high = np.asarray(params.fingertip_low), np.asarray(params.fingertip_high)
    farthest = np.linalg.norm(np.maximum(abs(low), abs(high)), axis=1)
    if (inside := np.flatnonzero(farthest <= NEAREST)).size:
        raise UserError(
            f"{TABLE}: the fingertip of client {inside[0]} would be in "
            f"{_box(low[inside[0]], high[inside[0]])}, nearer to the hinge than it can come "
            f"({NEAREST})"
        )


def _check_reach(what: str, lows: Array, highs: Array) -> None:
    low, high = np.asarray(lows), np.asarray(highs)
    if (outside := np.flatnonzero(~reachable(low, high))).size:
        raise UserError(
            f"{TABLE}: {what} of client {outside[0]} would be in "
            f"{_box(low[outside[0]], high[outside[0]])}, where nothing is within the arm's reach "
            f"of {REACH}"
        )


def _box(low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]) -> str:
    return " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True))


def _z_order(across: int) -> np.ndarray:
    """Return the (column, row) of all cells of a grid, along a Z-order curve."""
    row, column = np.divmod(np.arange(across * across), across)
    bits = range(across.bit_length())
    code = sum((column >> b & 1) << 2 * b | (row >> b & 1) << 2 * b + 1 for b in bits)
    return np.stack([column, row], axis=1)[np.argsort(code)]
