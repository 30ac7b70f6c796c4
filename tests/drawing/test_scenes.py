"""Several episodes in one picture."""

import numpy as np
import pytest

from fedkl.drawing import Scene, grid

COLOURS = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 0), (0, 200, 200)]


def scene(colour, frames=1, side=100):
    """Pictures of one colour."""
    return Scene(
        iter([np.full((side, side, 3), colour, np.uint8)] * frames),
        [f"picture {n}" for n in range(frames)],
    )


def places(picture):
    """Where each colour is: the first and last row and column."""
    found = {}
    for colour in COLOURS:
        rows, columns = np.nonzero(np.all(picture == colour, axis=-1))
        if rows.size:
            found[colour] = (rows.min(), rows.max(), columns.min(), columns.max())
    return found


@pytest.mark.parametrize(("number", "across"), [(1, 1), (2, 2), (4, 2), (5, 3)])
def test_scenes_lie_side_by_side_in_order_and_nowhere_twice(number, across):
    (picture,) = grid([scene(c) for c in COLOURS[:number]], "heading", [], 400)
    assert picture.dtype == np.uint8
    assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0
    found = places(picture)
    assert list(found) == COLOURS[:number]
    for n, (top, bottom, left, right) in enumerate(found.values()):
        assert (bottom - top, right - left) == (99, 99)  # no larger than they are
        assert left == 8 + n % across * 108
        assert top == 34 + 22 + n // across * (22 + 100 + 8)


def test_many_scenes_are_drawn_smaller():
    (picture,) = grid([scene(c, side=480) for c in COLOURS[:4]], "heading", [], 600)
    assert picture.shape[1] == 600
    top, bottom, left, right = places(picture)[COLOURS[3]]
    assert bottom - top == right - left == 287  # (600 - 8) / 2 - 8, less 1


def test_an_agent_that_has_ended_stays_until_the_last_has_too():
    frames = list(grid([scene(COLOURS[0], 1), scene(COLOURS[1], 3)], "heading", [], 400))
    assert len(frames) == 3
    assert all(set(places(frame)) == set(COLOURS[:2]) for frame in frames)
    # The caption of the one goes on, that of the other does not.
    left, right = slice(8, 108), slice(116, 216)
    assert np.array_equal(frames[0][34:56, left], frames[2][34:56, left])
    assert not np.array_equal(frames[0][34:56, right], frames[2][34:56, right])


def test_the_legend_names_its_colours_below_the_heading():
    (plain,) = grid([scene(COLOURS[0])], "a heading", [], 400)
    (told,) = grid([scene(COLOURS[0])], "a heading", [("fingertip", COLOURS[1])], 400)
    top, bottom, _, _ = places(told)[COLOURS[1]]
    assert 34 <= top < bottom < 56
    assert bottom - top == pytest.approx(10, abs=2)
    assert places(told)[COLOURS[0]][0] == places(plain)[COLOURS[0]][0] + 22
    # A heading that is wider than the scenes widens the picture.
    (wide,) = grid([scene(COLOURS[0])], "a long heading " * 5, [], 400)
    assert wide.shape[1] > 500
