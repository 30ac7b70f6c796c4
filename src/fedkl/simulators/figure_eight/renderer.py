"""The figure-eight drawn from above.

A car's colour is its speed. Who drives it is told without colour: an autonomous vehicle has a
thick outline and a white dot on its roof.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkl.drawing.canvas import INK, MUTED, Canvas, Colour, Frame
from fedkl.simulators.figure_eight.network import Network
from fedkl.simulators.figure_eight.simulation import CAR_LENGTH

TOP_SPEED = 15.0
"""Metres per second at the bright end of the colours; faster vehicles look the same."""

_SIZE = 640
_MARGIN = 5.0
# Wider than they are: on a field of 120 m, true cars would be hard to see.
_CAR, _ROAD = 3.3, 5.6
_ASPHALT, _KERB, _MARKING = (207, 211, 216), (160, 167, 175), (247, 248, 249)
_WHITE = (255, 255, 255)
_SPEEDS = (
    (70, 31, 110),
    (61, 77, 138),
    (43, 116, 142),
    (32, 152, 138),
    (70, 192, 111),
    (157, 217, 60),
    (253, 231, 37),
)
"""Viridis at even steps, from near its dark end: brighter is faster, in grey as well."""


class FigureEightPicture:
    """Draws frames of one figure-eight; the road and the legend are drawn once.

    Args:
        network: the road.
        placement: a letter for each vehicle, h for a human, r for an autonomous one.

    Raises:
        UserError: Pillow is not installed.
    """

    def __init__(self, network: Network, placement: str):
        self._network = network
        self._placement = placement
        loop = network.points(np.linspace(0, network.length, 400))
        low, high = loop.min(axis=0), loop.max(axis=0)
        self._side = float(np.max(high - low)) + 2 * _MARGIN
        self._corner = (low + high - self._side) / 2
        self._background = Canvas((_SIZE, _SIZE), self._corner, _SIZE / self._side)
        self._draw_road(loop)
        self._draw_legend()

    def draw(self, x: ArrayLike, speeds: ArrayLike, caption: str = "") -> Frame:
        """Draw one frame.

        Args:
            x: where each vehicle's front bumper is, in metres along the loop.
            speeds: of each vehicle, in metres per second.
            caption: written in the empty corner at the top left; 30 letters fit in a line.

        Returns:
            An RGB picture.
        """
        canvas = self._background.copy()
        fronts = self._network.points(np.asarray(x))
        headings = fronts - self._network.points(np.asarray(x) - CAR_LENGTH)
        cars = zip(self._placement, fronts, headings, np.asarray(speeds), strict=True)
        for driver, front, heading, speed in cars:
            _draw_car(canvas, driver, front, heading, speed_colour(float(speed)))
        canvas.text(self._at(0.03, 0.97), caption, 18, anchor="la")
        return canvas.image()

    def _at(self, across: float, up: float) -> NDArray[np.float64]:
        """Return the point of the plane at a fraction of the picture's width and height."""
        return self._corner + self._side * np.array([across, up])

    def _draw_road(self, loop: NDArray[np.float64]) -> None:
        canvas = self._background
        canvas.line(loop, _ROAD + 1.0, _KERB)
        canvas.line(loop, _ROAD, _ASPHALT)
        lanes = {lane.edge: lane for lane in self._network.lanes}
        for lane in lanes.values():
            # Arrows say which way the loop is driven.
            for at in np.arange(14.0, lane.length - 5.0, 14.0):
                tail, tip = self._network.points(lane.start + at + np.array([-1.0, 0.0]))
                ahead, side = _axes(tip - tail)
                canvas.line([tip - ahead + side, tip, tip - ahead - side], 0.35, _MARKING)
        # Who comes from the right waits at the crossing, behind a broken line.
        start, stop = lanes["right"].shape[-2:]
        ahead, side = _axes(stop - start)
        for offset in np.linspace(-2, 2, 4):
            canvas.rectangle(stop + offset * side, ahead, 0.8, 0.7, _MARKING)

    def _draw_legend(self) -> None:
        canvas = self._background
        left, width, steps = 0.58, 0.30, 90
        right, up = np.array([1.0, 0.0]), 0.190
        canvas.text(self._at(left, up + 0.045), "speed", 15, MUTED)
        # Each bar covers the left of the one before, so that no seams show between them.
        for i in reversed(range(steps)):
            end = self._at(left + width * (i + 1) / steps, up)
            length = self._side * width * (i + 1) / steps
            colour = speed_colour(TOP_SPEED * i / (steps - 1))
            canvas.rectangle(end, right, length, 0.025 * self._side, colour)
        canvas.text(self._at(left, up - 0.035), "0", 15)
        canvas.text(self._at(left + width, up - 0.035), f"{TOP_SPEED:.0f} m/s", 15, anchor="rm")
        for driver, name, x in (("h", "human", left), ("r", "autonomous", left + 0.15)):
            _draw_car(canvas, driver, self._at(x + 0.042, 0.08), right, speed_colour(7.5))
            canvas.text(self._at(x + 0.055, 0.08), name, 15)


def speed_colour(speed: float) -> Colour:
    """Return the colour of a car.

    Example:
        >>> speed_colour(0.0), speed_colour(99.0)
        ((70, 31, 110), (253, 231, 37))
    """
    at = np.linspace(0, TOP_SPEED, len(_SPEEDS))
    parts = zip(*_SPEEDS, strict=True)
    red, green, blue = (round(float(np.interp(speed, at, part))) for part in parts)
    return red, green, blue


def _axes(heading: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the directions ahead and to the left."""
    ahead = heading / np.linalg.norm(heading)
    return ahead, np.array([-ahead[1], ahead[0]])


def _draw_car(
    canvas: Canvas,
    driver: str,
    front: NDArray[np.float64],
    heading: NDArray[np.float64],
    colour: Colour,
) -> None:
    """Draw a car whose front bumper is at a point."""
    ahead, _ = _axes(heading)
    autonomous = driver == "r"
    edge = 0.5 if autonomous else 0.2
    canvas.rectangle(front, ahead, CAR_LENGTH, _CAR, INK)
    canvas.rectangle(front - edge * ahead, ahead, CAR_LENGTH - 2 * edge, _CAR - 2 * edge, colour)
    if autonomous:
        roof = front - CAR_LENGTH / 2 * ahead
        canvas.circle(roof, 0.9, INK)
        canvas.circle(roof, 0.6, _WHITE)
