"""What can be told of the Reacher's picture without looking at it."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.worlds.reacher_renderer import draw

BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
SCALE = 480 / 0.46


def pixel(x: float, y: float) -> tuple[int, int]:
    """Row and column of a point of the plane."""
    return int((0.23 - y) * SCALE), int((x + 0.23) * SCALE)


def centre(frame: np.ndarray, colour: tuple[int, int, int]) -> tuple[float, float]:
    rows, columns = np.nonzero(np.all(frame == colour, axis=-1))
    return rows.mean(), columns.mean()


def test_a_frame_is_fit_for_a_video_codec():
    frame = draw([0.0, 0.0], [0.1, 0.1])
    assert frame.shape == (480, 480, 3)
    assert frame.dtype == np.uint8


@pytest.mark.parametrize(
    ("q", "tip"),
    [
        ((0.0, 0.0), (0.21, 0.0)),
        ((np.pi / 2, 0.0), (0.0, 0.21)),
        ((0.0, np.pi / 2), (0.1, 0.11)),
        ((np.pi, np.pi / 2), (-0.1, -0.11)),
    ],
)
def test_the_fingertip_is_where_the_joints_put_it(q, tip):
    assert centre(draw([*q], [-0.1, 0.1]), BLUE) == pytest.approx(pixel(*tip), abs=1)


def test_the_target_is_where_it_is_and_seen_under_the_fingertip():
    assert centre(draw([0.0, 0.0], [-0.1, 0.05]), ORANGE) == pytest.approx(pixel(-0.1, 0.05), abs=1)
    reached = draw([0.0, np.pi / 2], [0.1, 0.11])
    assert np.all(reached == ORANGE, axis=-1).sum() > 30


def test_the_box_is_drawn_faintly_between_its_corners():
    plain = draw([0.0, 0.0], [-0.12, 0.12])
    boxed = draw([0.0, 0.0], [-0.12, 0.12], box=([-0.15, 0.1], [-0.1, 0.15]))
    rows, columns = np.nonzero(np.any(plain != boxed, axis=-1))
    (top, left), (bottom, right) = pixel(-0.15, 0.15), pixel(-0.1, 0.1)
    edges = (rows.min(), rows.max(), columns.min(), columns.max())
    assert edges == pytest.approx((top, bottom, left, right), abs=2)
    change = np.abs(plain[rows, columns].astype(int) - boxed[rows, columns])
    assert change.max() < 100
    assert np.median(change.max(axis=-1)) < 40


def test_arrays_of_jax_are_drawn_like_lists():
    box = ([-0.15, 0.1], [-0.1, 0.15])
    plain = draw([0.5, 1.0], [0.1, 0.1], box=box)
    low, high = jnp.asarray(box[0]), jnp.asarray(box[1])
    assert np.array_equal(
        plain, draw(jnp.array([0.5, 1.0]), jnp.array([0.1, 0.1]), box=(low, high))
    )
