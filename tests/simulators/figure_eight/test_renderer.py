"""What can be told of the figure-eight's picture without looking at it."""

import numpy as np
import pytest

from fedkl.simulators.figure_eight.network import Network, figure_eight
from fedkl.simulators.figure_eight.placement import MIXED, VEHICLES
from fedkl.simulators.figure_eight.renderer import FigureEightPicture, speed_colour

# The loop spans -1.6 m to 118.4 m both ways; with 5 m around it, 640 pixels show 130 m.
SCALE = 640 / 130


def pixel(x: float, y: float) -> tuple[int, int]:
    """Row and column of a point of the plane."""
    return int(640 - (y + 6.6) * SCALE), int((x + 6.6) * SCALE)


@pytest.fixture(scope="module")
def network() -> Network:
    return figure_eight()


@pytest.fixture(scope="module")
def picture(network) -> FigureEightPicture:
    return FigureEightPicture(network, "h" * VEHICLES)


def spread(network: Network) -> np.ndarray:
    return np.arange(VEHICLES) * network.length / VEHICLES


def differing(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.nonzero(np.any(a != b, axis=-1))


def test_a_frame_is_fit_for_a_video_codec(picture, network):
    frame = picture.draw(spread(network), np.zeros(VEHICLES))
    assert frame.shape == (640, 640, 3)
    assert frame.dtype == np.uint8


def test_a_car_at_the_start_of_bottom_is_behind_its_front_bumper(picture):
    frame = picture.draw(np.zeros(VEHICLES), np.zeros(VEHICLES))
    # Its front is at (61.6, 30), it heads up and is 5 m long.
    for y in (25.5, 27.0, 29.0):
        assert tuple(frame[pixel(61.6, y)]) == speed_colour(0), y
    empty = picture.draw(np.full(VEHICLES, 200.0), np.zeros(VEHICLES))
    rows, columns = differing(frame, empty)
    near = np.abs(columns - pixel(61.6, 30)[1]) < 20
    assert rows[near].min() == pytest.approx(pixel(0, 30.0)[0], abs=1)
    assert rows[near].max() == pytest.approx(pixel(0, 25.0)[0], abs=1)


def test_a_car_on_right_heads_left(picture, network):
    front = network.coordinate("right", 10.0)
    frame = picture.draw(np.full(VEHICLES, front), np.zeros(VEHICLES))
    x, y = network.points(np.array(front))
    assert y == 61.6
    assert tuple(frame[pixel(x + 4.5, y)]) == speed_colour(0)
    assert tuple(frame[pixel(x - 0.5, y)]) != speed_colour(0)


def test_a_loop_coordinate_counts_from_either_end(picture, network):
    speeds = np.full(VEHICLES, 3.0)
    once = picture.draw(spread(network), speeds)
    assert np.array_equal(once, picture.draw(spread(network) + network.length, speeds))


def test_only_the_car_that_changes_speed_changes_colour(picture, network):
    x, speeds = spread(network), np.full(VEHICLES, 4.0)
    before = picture.draw(x, speeds)
    speeds[3] = 12.0
    rows, columns = differing(before, picture.draw(x, speeds))
    middle = network.points(x[3] - 2.5)
    assert np.hypot(rows - pixel(*middle)[0], columns - pixel(*middle)[1]).max() < 3.5 * SCALE


def test_speed_colours_grow_brighter_all_the_way_and_then_stay():
    luma = [np.dot(speed_colour(v), [0.2126, 0.7152, 0.0722]) for v in np.linspace(0, 15, 31)]
    assert np.all(np.diff(luma) > 1)
    assert speed_colour(15) == speed_colour(30)
    assert speed_colour(0) == speed_colour(-1)


def test_who_drives_is_seen_at_every_speed_without_colour(network):
    x = spread(network)
    for speed in (0.0, 7.5, 15.0):
        speeds = np.full(VEHICLES, speed)
        human = FigureEightPicture(network, "h" * VEHICLES).draw(x, speeds)
        mixed = FigureEightPicture(network, MIXED).draw(x, speeds)
        difference = np.abs(human.mean(axis=-1) - mixed.mean(axis=-1))
        for i, letter in enumerate(MIXED):
            row, column = pixel(*network.points(x[i] - 2.5))
            there = difference[row - 12 : row + 12, column - 12 : column + 12]
            assert (there.max() > 60) == (letter == "r"), (speed, i)


def test_the_caption_covers_neither_road_nor_cars_nor_legend(picture, network):
    x, speeds = spread(network), np.zeros(VEHICLES)
    plain = picture.draw(x, speeds)
    told = picture.draw(x, speeds, "time 123.4 s, every 3rd frame\nmean speed 12.34 m/s")
    rows, columns = differing(plain, told)
    assert len(rows) > 500
    assert np.unique(plain[rows, columns], axis=0).shape == (1, 3)
    assert rows.min() > 10
    assert columns.min() > 10


def test_a_frame_leaves_nothing_behind_for_the_next(picture, network):
    first = picture.draw(spread(network), np.zeros(VEHICLES), "one")
    picture.draw(spread(network) + 9, np.full(VEHICLES, 9.0), "another")
    assert np.array_equal(first, picture.draw(spread(network), np.zeros(VEHICLES), "one"))


def test_a_number_of_vehicles_unlike_the_placement_is_refused(picture):
    with pytest.raises(ValueError, match="zip"):
        picture.draw(np.zeros(3), np.zeros(3))
