"""The classic worlds drawn from the side, each with the numbers that make a client's its own."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkl.drawing.canvas import INK, Canvas, Colour, Frame

_SIZE = (480, 320)
_GROUND, _RIM = (238, 240, 243), (160, 167, 175)
_BODY, _MOVING, _GOAL, _WHITE = (91, 103, 117), (0, 114, 178), (213, 94, 0), (255, 255, 255)
GOAL: tuple[str, Colour] = ("goal", _GOAL)
"""For a legend."""


def draw_cartpole(position: float, angle: float, half_length: float, limit: float) -> Frame:
    """Draw the cart on its track, and the pole, which is twice as long as `half_length`.

    Args:
        position: of the cart.
        angle: of the pole from upright, to the right.
        half_length: from the pivot to the pole's centre of mass.
        limit: how far from the middle the cart may go.
    """
    canvas = _track(limit, half_length).copy()
    pivot = np.array([position, 0.22])
    canvas.polygon(pivot + _box(0.25, 0.22), INK)
    canvas.polygon(pivot + _box(0.23, 0.20), _BODY)
    tip = pivot + 2 * half_length * _upwards(angle)
    canvas.line([pivot, tip], 0.09, _MOVING)
    canvas.circle(pivot, 0.06, _WHITE)
    return canvas.image()


def draw_pendulum(angle: float, length: float) -> Frame:
    """Draw the rod about its pivot.

    Args:
        angle: from upright, against the clock as in Gymnasium's picture.
        length: of the rod.
    """
    reach = 1.25 * max(1.0, length)
    canvas = Canvas((_SIZE[1], _SIZE[1]), (-reach, -reach), _SIZE[1] / (2 * reach))
    canvas.circle((0, 0), length, _GROUND)
    rod = [np.zeros(2), length * _upwards(-angle)]
    canvas.line(rod, 0.14, INK)
    canvas.line(rod, 0.11, _MOVING)
    canvas.circle((0, 0), 0.05, _WHITE)
    return canvas.image()


def draw_mountain_car(position: float, goal: float, left: float, right: float) -> Frame:
    """Draw the valley between its ends, the car in it, and the flag at the goal."""
    canvas = _valley(left, right).copy()
    foot = _on_slope(goal)
    canvas.line([foot, foot + np.array([0.0, 0.18])], 0.012, INK)
    canvas.polygon(foot + np.array([(0.0, 0.18), (0.0, 0.12), (0.09, 0.15)]), _GOAL)
    along = np.array([1.0, 1.35 * np.cos(3 * position)])
    along /= np.linalg.norm(along)
    across = np.array([-along[1], along[0]])
    wheels = _on_slope(position) + 0.025 * across
    canvas.rectangle(wheels + 0.06 * along + 0.035 * across, along, 0.12, 0.05, _MOVING)
    for side in (-0.035, 0.035):
        canvas.circle(wheels + side * along, 0.022, INK)
    return canvas.image()


def draw_acrobot(angles: tuple[float, float], lengths: tuple[float, float], height: float) -> Frame:
    """Draw both links, and the height that the tip must pass.

    Args:
        angles: of the first link from hanging, and of the second from the first.
        lengths: of the links.
        height: of the goal above the bar.
    """
    (first, second), (one, two) = angles, lengths
    reach = 1.15 * max(2.0, one + two, abs(height))
    canvas = Canvas((_SIZE[1], _SIZE[1]), (-reach, -reach), _SIZE[1] / (2 * reach))
    canvas.circle((0, 0), one + two, _GROUND)
    canvas.line([(-reach, height), (reach, height)], 0.02 * reach, _GOAL)
    bar, joint = np.zeros(2), one * _upwards(np.pi - first)
    tip = joint + two * _upwards(np.pi - first - second)
    canvas.line([bar, joint, tip], 0.07 * reach, INK)
    canvas.line([bar, joint], 0.055 * reach, _BODY)
    canvas.line([joint, tip], 0.055 * reach, _MOVING)
    for at in (bar, joint):
        canvas.circle(at, 0.025 * reach, _WHITE)
    return canvas.image()


def _upwards(angle: float) -> NDArray[np.float64]:
    """The direction at an angle from upright, with the clock."""
    return np.array([np.sin(angle), np.cos(angle)])


def _box(half_width: float, height: float) -> NDArray[np.float64]:
    """A box below a point, as offsets of its corners."""
    x, y = half_width, -height
    return np.array([(-x, 0.0), (x, 0.0), (x, y), (-x, y)])


def _on_slope(x: ArrayLike) -> NDArray[np.float64]:
    """The point of the valley at a position; as high as in Gymnasium's picture."""
    at = np.asarray(x, np.float64)
    return np.stack([at, 0.45 * np.sin(3 * at) + 0.55], axis=-1)


@lru_cache(maxsize=64)
def _track(limit: float, half_length: float) -> Canvas:
    # Wide enough for the track, and as high as the pole.
    half = max(1.15 * limit, 2 * half_length + 0.4)
    canvas = Canvas(_SIZE, (-half, -0.25 * half), _SIZE[0] / (2 * half))
    canvas.polygon([(-half, 0.0), (half, 0.0), (half, -half), (-half, -half)], _GROUND)
    canvas.line([(-limit, 0.0), (limit, 0.0)], 0.03, _RIM)
    for end in (-limit, limit):
        canvas.line([(end, -0.08), (end, 0.08)], 0.03, _RIM)
    return canvas


@lru_cache(maxsize=8)
def _valley(left: float, right: float) -> Canvas:
    canvas = Canvas(_SIZE, (left - 0.05, -0.02), _SIZE[0] / (right - left + 0.1))
    slope = _on_slope(np.linspace(left - 0.1, right + 0.1, 120))
    canvas.polygon([*slope, (right + 0.1, -1.0), (left - 0.1, -1.0)], _GROUND)
    canvas.line(slope, 0.012, _RIM)
    return canvas
