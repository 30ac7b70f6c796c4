"""Ways to make one point of many: the paper's weighted mean, and others that bear bad clients.

The robust ones do not look at the weights: a client says its own, so a weight is one more thing
that a bad client could lie about.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.server.aggregation.base import Reducer, register_reducer


@register_reducer
class Mean(Reducer):
    """sum_k w_k / W x_k (Algorithm 2, line 11; McMahan et al. 2017).

    Terms are added one after the other in ascending order of the client's number, so that the
    result has the same bits in whatever order clients finish.
    """

    name: ClassVar[str] = "mean"
    summary: ClassVar[str] = "average weighted by the steps that each client trained on"
    merges_moments: ClassVar[bool] = True

    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        total = sum(float(w) for w in weights)
        shares = [float(w) / total for w in weights]
        return np.asarray(sum(s * x for s, x in zip(shares, points, strict=True)))


@register_reducer
class Median(Reducer):
    """The median of each coordinate (Yin et al. 2018, Definition 1); of an even number of points,
    the middle between the two in the middle."""

    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "median of each coordinate, unweighted"

    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        return np.median(points, axis=0)


@register_reducer
class TrimmedMean(Reducer):
    """The mean of each coordinate without its floor(trim k) smallest and as many largest values
    (Yin et al. 2018, Definition 2). Where fewer clients than K arrive, fewer may be cut off."""

    name: ClassVar[str] = "trimmed-mean"
    summary: ClassVar[str] = "mean of each coordinate without its extremes, unweighted"

    trim: float = setting(
        0.2,
        "share of the clients that is cut off at each end, below one half (`median` is the limit)",
        low=0,
        high=0.499,
    )

    def check(self, clients_per_round: int) -> None:
        if self.trim > 0 and self._cut(clients_per_round) == 0:
            least = math.ceil(1000 / clients_per_round) / 1000
            allowed = "0" if clients_per_round < 3 else f"0, or at least {least}"
            raise UserError(
                f"aggregation.trim must be {allowed}, not {self.trim}: it would cut off nobody "
                f"with federation.clients_per_round = {clients_per_round}"
            )

    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        cut = self._cut(len(points))
        return np.sort(points, axis=0)[cut : len(points) - cut].mean(axis=0)

    def _cut(self, clients: int) -> int:
        return math.floor(self.trim * clients + 1e-9)  # 0.29 times 100 is 28.999... in floats


@register_reducer
class GeometricMedian(Reducer):
    """The point with the smallest sum of distances to all, by the smoothed Weiszfeld algorithm
    (Pillutla et al. 2022, RFA).

    Lengths are measured in the median distance from the coordinate-wise median, where the
    iteration starts: neither is moved far by a minority, and the settings have no unit.
    """

    name: ClassVar[str] = "geometric-median"
    summary: ClassVar[str] = "point with the smallest sum of distances to all, unweighted"

    iterations: int = setting(100, "Weiszfeld iterations at most", low=1)
    tolerance: float = setting(
        1e-6,
        "iterations stop at a step this short, and distances are smoothed below this (relative to "
        "the points' median distance from the start)",
        above=0,
    )

    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        start = np.median(points, axis=0)
        offsets = points - start
        small = self.tolerance * float(np.median(np.linalg.norm(offsets, axis=1)))
        if small == 0:  # most points are the same, and that point is the geometric median
            return start
        middle = np.zeros_like(start)
        for _ in range(self.iterations):
            pull = 1 / np.maximum(small, np.linalg.norm(offsets - middle, axis=1))
            previous, middle = middle, pull @ offsets / pull.sum()
            if np.linalg.norm(middle - previous) <= small:
                break
        return start + middle


@register_reducer
class Krum(Reducer):
    """The client's point whose nearest neighbours are nearest (Blanchard et al. 2017).

    A point's score is the sum of its squared distances to the k - byzantine - 2 others nearest to
    it; of equal scores the lowest client's counts. Where fewer clients than K arrive, fewer
    neighbours are looked at, but at least 1 of them, and the paper's guarantee no longer holds.
    """

    name: ClassVar[str] = "krum"
    summary: ClassVar[str] = "the client's point that is nearest to its neighbours"

    byzantine: int = setting(1, "B: bad clients to bear; needs K >= 2 B + 3", low=0)

    def check(self, clients_per_round: int) -> None:
        if clients_per_round < (needed := 2 * self.byzantine + 3):
            raise UserError(
                f"aggregation.reduce = {self.name} with aggregation.byzantine = {self.byzantine} "
                f"needs federation.clients_per_round of at least {needed}, not {clients_per_round}"
            )

    def after_refusing(self, refused: int) -> Krum:
        return replace(self, byzantine=max(0, self.byzantine - refused))

    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        return points[self.ranking(points)[0]]

    def ranking(self, points: Float[np.ndarray, "k p"]) -> Int[np.ndarray, " k"]:
        """The rows of the points, the best score first."""
        neighbours = max(1, len(points) - self.byzantine - 2)
        distances = [np.square(points - point).sum(axis=1) for point in points]
        others = np.sort(distances, axis=1)[:, 1:]  # the smallest is a point's distance to itself
        return np.argsort(others[:, :neighbours].sum(axis=1), kind="stable")


@register_reducer
class MultiKrum(Krum):
    """The unweighted mean of the points with the best Krum scores (Blanchard et al. 2017). Where
    fewer clients than K arrive, as many as there are (less `byzantine`, if `chosen` is 0), but at
    least 1. Clients that validation has refused are among the B."""

    name: ClassVar[str] = "multi-krum"
    summary: ClassVar[str] = "mean of the points that are nearest to their neighbours"

    chosen: int = setting(0, "m: points that are averaged; 0: all but B", low=0)

    def check(self, clients_per_round: int) -> None:
        super().check(clients_per_round)
        if self.chosen > (most := clients_per_round - self.byzantine):
            raise UserError(
                f"aggregation.chosen must be at most {most} (federation.clients_per_round less "
                f"aggregation.byzantine), not {self.chosen}"
            )

    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        best = self.ranking(points)[: self.chosen or max(1, len(points) - self.byzantine)]
        return points[np.sort(best)].mean(axis=0)


def suggested(clients_per_round: int) -> dict[str, Any]:
    """The settings that are suggested where clients are not all trusted: such that bear a liar in
    five; none for fewer than three clients, of whom no reducer knows who lies."""
    if clients_per_round < 3:
        return {}
    if clients_per_round < 5:
        return {"aggregation.reduce": Median.name}
    bad = clients_per_round // 5
    return {"aggregation.reduce": MultiKrum.name, "aggregation.byzantine": bad}
