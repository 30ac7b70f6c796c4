"""An episode to look at: drawn as far as it went."""

from typing import ClassVar, NamedTuple

import numpy as np
import pytest

import fedkl
from fedkl.clients.sources import Recording
from fedkl.server.recording import film
from fedkl.worlds import PointTarget


class Place(NamedTuple):
    x: np.ndarray


class Easel(PointTarget):
    """A world that draws one pixel: where it is, the steps so far, and the return in units."""

    frames_per_second: ClassVar[float] = 4.0

    def renderer(self, params):
        return lambda state, step, total: np.array([[[state.x + params, step, total]]], np.uint8)


def recording(length):
    """Five steps, of which `length` count; each is paid with 3."""
    return Recording(Place(np.arange(6)), np.full(5, 3.0), np.arange(5) < length, params=100)


def test_a_film_shows_every_state_from_the_first_to_the_last():
    made = film(Easel(), recording(5))
    frames = [frame[0, 0].tolist() for frame in made.frames]
    assert frames == [[100 + i, i, 3 * i] for i in range(6)]
    assert made.totals == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    assert made.episode_return == 15.0
    assert made.frames_per_second == 4.0


def test_a_film_is_cut_where_the_episode_ended():
    made = film(Easel(), recording(2))
    frames = [frame[0, 0].tolist() for frame in made.frames]
    assert frames == [[100, 0, 0], [101, 1, 3], [102, 2, 6]]
    assert made.episode_return == 6.0


def test_frames_are_drawn_only_when_they_are_looked_at():
    drawn = []

    class Slow(Easel):
        def renderer(self, params):
            return lambda state, step, total: drawn.append(step)

    made = film(Slow(), recording(5))
    assert drawn == []
    next(made.frames)
    assert drawn == [0]


DRAWN = r"^the world probe-point cannot be drawn; those that can: .*figure-eight, .*reacher"


def test_a_world_without_an_artist_is_refused_by_name(tiny):
    federation = fedkl.Federation(tiny())
    with pytest.raises(fedkl.UserError, match=DRAWN):
        federation.film(0, deterministic=True)
