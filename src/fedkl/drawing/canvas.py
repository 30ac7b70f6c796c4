"""A small canvas: shapes in world coordinates, antialiased pixels.

Shapes are drawn on an image several times too large, which is then averaged down. Only what was
drawn upon is averaged anew, so that a frame over a finished background costs little.
"""

from __future__ import annotations

import copy
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkl.core.errors import MissingPackageError

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont

Colour = tuple[int, int, int]
Frame = NDArray[np.uint8]
"""An RGB picture of shape (height, width, 3)."""

INK: Colour = (31, 41, 51)
MUTED: Colour = (107, 119, 133)
PAPER: Colour = (250, 250, 248)

_FINE = 3


def require_pillow() -> None:
    """Raise an error unless Pillow is installed.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("drawing needs Pillow", "video") from error


class Canvas:
    """A picture of a part of the plane, with x to the right and y up.

    Args:
        size: width and height in pixels.
        corner: the point of the plane at the lower left corner.
        scale: pixels per unit of the plane.
        colour: of the empty canvas.

    Raises:
        UserError: Pillow is not installed.

    Example:
        >>> canvas = Canvas((40, 20), corner=(-1.0, 0.0), scale=10.0, colour=(255, 255, 255))
        >>> canvas.circle((0.0, 1.0), radius=0.5, colour=(0, 0, 0))
        >>> canvas.image()[9, 10].tolist(), canvas.image()[9, 30].tolist()
        ([0, 0, 0], [255, 255, 255])
    """

    def __init__(
        self, size: tuple[int, int], corner: ArrayLike, scale: float, colour: Colour = PAPER
    ):
        require_pillow()
        from PIL import Image

        self.size = size
        self.scale = scale
        self._corner = np.asarray(corner, np.float64)
        self._image = Image.new("RGB", size, colour)
        self._draw_on(Image.new("RGB", (size[0] * _FINE, size[1] * _FINE), colour))

    def _draw_on(self, fine: Image.Image) -> None:
        from PIL import ImageDraw

        self._fine = fine
        self._pen = ImageDraw.Draw(fine)
        self._stale: list[tuple[int, int, int, int]] = []

    def copy(self) -> Canvas:
        """Another canvas with the same picture: how a background is drawn once and used often."""
        self._refresh()
        other = copy.copy(self)
        other._image = self._image.copy()
        other._draw_on(self._fine.copy())
        return other

    def polygon(self, points: ArrayLike, colour: Colour) -> None:
        """Fill the inside of corners, of shape (n, 2)."""
        at = self._pixels(points)
        self._pen.polygon(at.ravel().tolist(), fill=colour)
        self._touch(*at.min(axis=0), *at.max(axis=0))

    def circle(self, centre: ArrayLike, radius: float, colour: Colour) -> None:
        """Fill a circle."""
        self.polygon(np.asarray(centre) + radius * _circle(16 + int(radius * self.scale)), colour)

    def rectangle(
        self, front: ArrayLike, heading: ArrayLike, length: float, width: float, colour: Colour
    ) -> None:
        """Fill a rectangle that points along a heading and ends at the middle of its front."""
        nose, ahead = np.asarray(front), np.asarray(heading) / np.linalg.norm(heading)
        tail, across = nose - length * ahead, width / 2 * np.array([-ahead[1], ahead[0]])
        self.polygon([nose + across, nose - across, tail - across, tail + across], colour)

    def line(self, points: ArrayLike, width: float, colour: Colour) -> None:
        """Draw a line with round joints and ends through points, of shape (n, 2)."""
        line = np.asarray(points)
        for start, end in pairwise(line):
            if length := float(np.linalg.norm(end - start)):
                self.rectangle(end, end - start, length, width, colour)
        for point in line:
            self.circle(point, width / 2, colour)

    def text(
        self, at: ArrayLike, text: str, size: float, colour: Colour = INK, anchor: str = "lm"
    ) -> None:
        """Write text.

        Args:
            at: the point of the plane where the anchor is.
            text: one or more lines.
            size: of the letters, in pixels.
            colour: of the letters.
            anchor: which point of the text is the anchor: l(eft), m(iddle) or r(ight), and then
                a(scender), m(iddle) or d(escender).
        """
        x, y = self._pixels(np.asarray(at)[None])[0].tolist()
        font, spacing = _font(size * _FINE), 0.4 * size * _FINE
        self._pen.text((x, y), text, colour, font, anchor, spacing)
        self._touch(*self._pen.textbbox((x, y), text, font, anchor, spacing))

    def image(self) -> Frame:
        """Return the picture so far."""
        self._refresh()
        return np.array(self._image)

    def _pixels(self, points: ArrayLike) -> NDArray[np.float64]:
        """Map points of the plane to the fine image; Pillow's pixels are at whole numbers."""
        x, y = ((np.asarray(points) - self._corner) * (self.scale * _FINE)).T
        return np.stack([x, self.size[1] * _FINE - y], axis=1) - 0.5

    def _touch(self, left: float, top: float, right: float, bottom: float) -> None:
        """Remember which pixels are no longer the average of the fine image."""
        width, height = self.size
        box = (
            max(int(left) // _FINE - 1, 0),
            max(int(top) // _FINE - 1, 0),
            min(int(right) // _FINE + 2, width),
            min(int(bottom) // _FINE + 2, height),
        )
        if box[0] < box[2] and box[1] < box[3]:
            self._stale.append(box)

    def _refresh(self) -> None:
        width, height = self.size
        area = sum((right - left) * (bottom - top) for left, top, right, bottom in self._stale)
        for box in self._stale if area < width * height else [(0, 0, width, height)]:
            left, top, right, bottom = (_FINE * side for side in box)
            self._image.paste(self._fine.reduce(_FINE, (left, top, right, bottom)), box)
        self._stale = []


@cache
def _circle(corners: int) -> NDArray[np.float64]:
    """Return a polygon that passes for a circle, with about as many corners as radial pixels."""
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@cache
def _font(size: float) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)
