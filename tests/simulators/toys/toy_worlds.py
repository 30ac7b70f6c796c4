"""Worlds whose simulators are toys."""

from typing import ClassVar

import equinox as eqx
import numpy as np

from fedkl.simulators.base import Recipe
from fedkl.worlds import Continuous, PointTarget, SoloWorld


class Points(SoloWorld):
    """`probe-point` on the host: the client's target is in its row."""

    name: ClassVar[str] = "test-solo-points"
    summary: ClassVar[str] = "for tests"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Continuous] = Continuous(1)
    patience: ClassVar[float] = 20.0
    horizon: int = eqx.field(static=True, default=1)
    length: int = eqx.field(static=True, default=1)
    spread: float = 0.0

    def clients(self, n, key):
        return {"target": PointTarget(spread=self.spread).clients(n, key).target}

    def simulator(self):
        return Recipe("toy_simulators:Point", {"length": self.length})

    def renderer(self, params):
        def draw(state, step, total):
            """A single pixel: the target in tenths, the simulator's time, the steps so far."""
            target, time = state
            assert target == params["target"]
            return np.array([[[round(10 * target), time, step]]], np.uint8)

        return draw
