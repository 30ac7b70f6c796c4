"""Where shapes end up on the pixels."""

import sys

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.drawing.canvas import Canvas

WHITE, BLACK, RED = (255, 255, 255), (0, 0, 0), (200, 0, 0)


def blank(width: int = 40, height: int = 20) -> Canvas:
    """A field of 4 x 2 with the origin at the lower left, ten pixels to a unit."""
    return Canvas((width, height), (0.0, 0.0), 10.0, WHITE)


def covered(canvas: Canvas) -> np.ndarray:
    """How much of each pixel is black."""
    return 1 - canvas.image()[..., 0] / 255


def test_a_polygon_fills_its_pixels_with_y_up():
    canvas = blank()
    canvas.polygon([(1, 0), (2, 0), (2, 0.5), (1, 0.5)], BLACK)
    expected = np.zeros((20, 40))
    expected[15:, 10:20] = 1
    # Pillow counts an edge as inside: it may spill by one fine pixel, a third of a pixel.
    assert np.all(covered(canvas) >= expected)
    assert np.abs(covered(canvas) - expected).max() <= 0.34


def test_a_rectangle_lies_behind_its_front_whichever_way_it_heads():
    for heading, rows, columns in (
        ((1, 0), slice(8, 12), slice(10, 20)),
        ((-7, 0), slice(8, 12), slice(20, 30)),
        ((0, 1), slice(10, 20), slice(18, 22)),
    ):
        canvas = blank()
        canvas.rectangle((2.0, 1.0), heading, 1.0, 0.4, BLACK)
        assert covered(canvas)[rows, columns].min() == 1, heading
        assert covered(canvas).sum() == pytest.approx(40, rel=0.2), heading


def test_shapes_have_the_area_they_should():
    canvas = Canvas((200, 200), (0.0, 0.0), 10.0, WHITE)
    canvas.circle((10, 10), 8, BLACK)
    assert covered(canvas).sum() == pytest.approx(np.pi * 80**2, rel=0.01)
    canvas = Canvas((200, 200), (0.0, 0.0), 10.0, WHITE)
    canvas.line([(2, 2), (14, 2), (14, 2), (14, 11)], 2.0, BLACK)
    # Two strips whose corners overlap, a quarter of a disc at the joint, and two round ends.
    area = 20 * 120 + 20 * 90 - 10 * 10 + np.pi * 100 / 4 + np.pi * 100
    assert covered(canvas).sum() == pytest.approx(area, rel=0.02)


def test_edges_are_smooth():
    canvas = blank()
    canvas.circle((2, 1), 0.7, BLACK)
    shades = np.unique(covered(canvas))
    assert 5 < len(shades) <= 10


def test_a_copy_starts_with_the_background_and_leaves_it_alone():
    background = blank()
    background.circle((1, 1), 0.5, RED)
    before = background.image()
    frame = background.copy()
    frame.circle((3, 1), 0.5, BLACK)
    assert np.array_equal(background.image(), before)
    assert np.array_equal(frame.image()[:, :20], before[:, :20])
    assert tuple(frame.image()[10, 30]) == BLACK


def test_refreshing_what_was_drawn_upon_gives_the_same_as_refreshing_all():
    steps = [
        lambda canvas: canvas.circle((0.7, 0.63), 0.31, RED),
        lambda canvas: canvas.line([(-1, 0.2), (2.9, 1.77)], 0.13, BLACK),
        lambda canvas: canvas.text((1.5, 1.2), "gÅ|\nx", 11.5),
        lambda canvas: canvas.circle((3.9, 0.1), 0.6, RED),
        lambda canvas: canvas.circle((9, 9), 0.6, RED),
    ]
    at_once, step_by_step = blank(), blank()
    at_once.polygon([(0, 0), (4, 0), (4, 2), (0, 2)], WHITE)
    for step in steps:
        step(at_once)
        step(step_by_step)
        step_by_step.image()
    assert np.array_equal(at_once.image(), step_by_step.image())


@pytest.mark.parametrize(
    ("anchor", "half"), [("lm", slice(20, 40)), ("rm", slice(0, 20)), ("mm", slice(10, 30))]
)
def test_text_is_on_its_side_of_the_anchor(anchor, half):
    canvas = blank()
    canvas.text((2.0, 1.0), "ab", 12, BLACK, anchor)
    ink = covered(canvas)
    assert ink[:, half].sum() == pytest.approx(ink.sum())
    assert ink.sum() > 20


def test_no_text_draws_nothing():
    canvas = blank()
    canvas.text((2.0, 1.0), "", 12)
    assert covered(canvas).sum() == 0


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r"drawing needs Pillow.*\.\[video\]"):
        blank()
