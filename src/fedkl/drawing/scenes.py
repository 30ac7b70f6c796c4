"""Several episodes in one picture, each with its name, below a heading and a legend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedkl.drawing.canvas import INK, MUTED, Canvas, Colour, Frame, require_pillow

Legend = Sequence[tuple[str, Colour]]
"""Labels of colours: a few words, and the colour."""

_GAP = 8
_HEADING, _LINE, _CAPTION = 34, 22, 22  # heights in pixels
_LARGE, _SMALL = 17, 13  # letters


class Scene(NamedTuple):
    """An episode.

    Attributes:
        frames: its pictures, all of one size.
        captions: what is written above each of them.
    """

    frames: Iterator[Frame]
    captions: Sequence[str]


def grid(scenes: Sequence[Scene], heading: str, legend: Legend, width: int) -> Iterator[Frame]:
    """Draw the frames of all scenes side by side, as long as the longest of them.

    Args:
        scenes: at least one; what has come to its end stays as it was.
        heading: in a line above all.
        legend: below the heading.
        width: of the picture, about; a scene is never drawn larger than it is.

    Raises:
        UserError: Pillow is not installed.
    """
    require_pillow()
    across = math.ceil(math.sqrt(len(scenes)))
    ended = [False] * len(scenes)
    shown = [next(scene.frames) for scene in scenes]
    height, native = shown[0].shape[:2]
    tile = min(native, (width - _GAP) // across - _GAP)
    tall = round(tile * height / native)
    top = _HEADING + _LINE * bool(legend)
    size = (
        _even(max(across * (tile + _GAP) + _GAP, _needed(heading, legend))),
        _even(top + math.ceil(len(scenes) / across) * (_CAPTION + tall + _GAP)),
    )
    background = _background(size, heading, legend)
    step = 0
    while not all(ended):
        picture = background.copy()
        for n, scene in enumerate(scenes):
            x = _GAP + n % across * (tile + _GAP)
            y = top + n // across * (_CAPTION + tall + _GAP)
            said = scene.captions[min(step, len(scene.captions) - 1)]
            picture[y : y + _CAPTION, x : x + tile] = _caption(said, tile)
            picture[y + _CAPTION : y + _CAPTION + tall, x : x + tile] = _scaled(
                shown[n], (tile, tall)
            )
        yield picture
        step += 1
        for n, scene in enumerate(scenes):
            following = next(scene.frames, None)
            ended[n] = following is None
            shown[n] = shown[n] if following is None else following


def _even(pixels: int) -> int:
    """Round up to an even size: codecs take no odd ones."""
    return pixels + pixels % 2


def _needed(heading: str, legend: Legend) -> int:
    """About how wide the head is."""
    words = sum(len(name) for name, _ in legend)
    return max(int(0.56 * _LARGE * len(heading)), int(0.56 * _SMALL * words + 34 * len(legend)))


def _background(size: tuple[int, int], heading: str, legend: Legend) -> Frame:
    canvas = Canvas(size, (0.0, 0.0), 1.0)
    high = size[1]
    canvas.text((_GAP + 2, high - _HEADING / 2), heading, _LARGE)
    x = _GAP + 8.0
    for name, colour in legend:
        y = high - _HEADING - _LINE / 2 + 3
        canvas.circle((x, y), 5.0, colour)
        canvas.text((x + 10, y), name, _SMALL, MUTED)
        x += 34 + 0.53 * _SMALL * len(name)
    return canvas.image()


@lru_cache(maxsize=1024)
def _caption(text: str, width: int) -> Frame:
    canvas = Canvas((width, _CAPTION), (0.0, 0.0), 1.0)
    canvas.text((2.0, _CAPTION / 2), text, _SMALL, INK)
    return canvas.image()


def _scaled(frame: Frame, size: tuple[int, int]) -> Frame:
    from PIL import Image

    if frame.shape[1::-1] == size:
        return frame
    return np.array(Image.fromarray(frame).resize(size, Image.Resampling.BOX))
