"""The Reacher drawn from above."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkl.drawing.canvas import INK, Canvas, Frame
from fedkl.worlds.reacher import LINK_LENGTH, TIP_REACH
from fedkl.worlds.reacher_params import REACH

_SIZE = 480
_FIELD = 0.23
_GROUND, _RIM = (238, 240, 243), (208, 213, 219)
_BOX, _BOX_RIM = (248, 230, 214), (229, 187, 152)
_ARM, _TIP, _TARGET, _WHITE = (91, 103, 117), (0, 114, 178), (213, 94, 0), (255, 255, 255)


def legend(box: str) -> tuple[tuple[str, tuple[int, int, int]], ...]:
    """Return the legend: names of the colours.

    Args:
        box: what the box of a picture is.
    """
    return (("fingertip", _TIP), ("target", _TARGET), (box, _BOX_RIM))


def draw(
    q: ArrayLike,
    target: ArrayLike,
    box: tuple[ArrayLike, ArrayLike] | None = None,
) -> Frame:
    """Draw one frame: the arm, its target, and the disc in which targets lie.

    Args:
        q: the joint angles.
        target: where the target is.
        box: the corners, low and high, between which the client's targets spawn, or its fingertip
            starts.

    Returns:
        An RGB picture.

    Raises:
        UserError: Pillow is not installed.
    """
    shoulder, angle = np.zeros(2), np.asarray(q, np.float64)
    elbow = LINK_LENGTH * _direction(angle[0])
    tip = elbow + TIP_REACH * _direction(angle[0] + angle[1])
    canvas = _background(
        None if box is None else (*np.asarray(box[0]).tolist(), *np.asarray(box[1]).tolist())
    ).copy()
    for radius, colour in ((0.014, _TARGET), (0.011, _WHITE), (0.0085, _TARGET)):
        canvas.circle(target, radius, colour)
    canvas.line([shoulder, elbow, tip], 0.016, INK)
    canvas.line([shoulder, elbow, tip], 0.012, _ARM)
    for joint in (shoulder, elbow):
        canvas.circle(joint, 0.012, INK)
        canvas.circle(joint, 0.0055, _WHITE)
    canvas.circle(tip, 0.0105, _WHITE)
    canvas.circle(tip, 0.0085, _TIP)
    return canvas.image()


def _direction(angle: float) -> NDArray[np.float64]:
    return np.array([np.cos(angle), np.sin(angle)])


@lru_cache(maxsize=64)
def _background(box: tuple[float, float, float, float] | None) -> Canvas:
    """Draw the part that stays the same through an episode."""
    canvas = Canvas((_SIZE, _SIZE), (-_FIELD, -_FIELD), _SIZE / (2 * _FIELD))
    canvas.circle((0, 0), REACH + 0.001, _RIM)
    canvas.circle((0, 0), REACH - 0.001, _GROUND)
    if box is not None:
        left, low, right, high = box
        corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
        canvas.polygon(corners, _BOX)
        canvas.line(corners, 0.002, _BOX_RIM)
    return canvas
