"""An episode of the global policy to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import UInt8

from fedkl.clients.sources import Recording
from fedkl.worlds.base import AnyWorld


class Film(NamedTuple):
    """An episode, drawn as it is looked at."""

    frames: Iterator[UInt8[np.ndarray, "h w 3"]]
    frames_per_second: float
    episode_return: float


def film(world: AnyWorld, recording: Recording) -> Film:
    """Draws a recorded episode.

    Raises:
        UserError: the world cannot be drawn.
    """
    artist = world.artist(recording.params)
    length = int(np.asarray(recording.mask).sum())
    reward = np.asarray(recording.reward)[:length]
    totals = np.concatenate([[0.0], np.cumsum(reward, dtype=np.float64)])
    frames = (
        artist(jax.tree.map(lambda x, i=i: x[i], recording.states), i, total)
        for i, total in enumerate(totals.tolist())
    )
    return Film(frames, world.frames_per_second, float(totals[-1]))
