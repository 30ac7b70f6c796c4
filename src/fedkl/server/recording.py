"""An episode of the global policy to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import UInt8

from fedkl.clients.sources import Recording
from fedkl.worlds.base import AnyWorld


class Episode(NamedTuple):
    """An episode, drawn as it is looked at.

    Attributes:
        frames: the first state, and that after each step.
        frames_per_second: how fast they are shown.
        totals: the return so far, of each frame.
    """

    frames: Iterator[UInt8[np.ndarray, "h w 3"]]
    frames_per_second: float
    totals: list[float]

    @property
    def episode_return(self) -> float:
        """The return at the end."""
        return self.totals[-1]


def film(world: AnyWorld, recording: Recording) -> Episode:
    """Draw a recorded episode.

    Raises:
        UserError: the world cannot be drawn.
    """
    renderer = world.renderer(recording.params)
    length = int(np.asarray(recording.mask).sum())
    reward = np.asarray(recording.reward)[:length]
    totals = np.concatenate([[0.0], np.cumsum(reward, dtype=np.float64)]).tolist()
    frames = (
        renderer(jax.tree.map(lambda x, i=i: x[i], recording.states), i, total)
        for i, total in enumerate(totals)
    )
    return Episode(frames, world.frames_per_second, totals)
