"""A reducer of your own: the weighted mean of those who are not far from the rest.

Distances are from the coordinate-wise median, and far is more than `screen` times the distance
that half of the clients keep. Unlike a median, it still uses all of every client that it trusts.

    fedkl train demo --plugin examples/own_reducer.py --set aggregation.reduce=screened-mean
"""

from typing import ClassVar

import numpy as np

import fedkl


@fedkl.register_reducer
class ScreenedMean(fedkl.Reducer):
    """Leaves out what is far from the median of the clients, and averages the rest."""

    name: ClassVar[str] = "screened-mean"
    summary: ClassVar[str] = "weighted mean of those not far from the coordinate-wise median"

    screen: float = fedkl.setting(2.0, "how many median distances are far", low=1)

    def __call__(self, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        distances = np.linalg.norm(points - np.median(points, axis=0), axis=1)
        near = distances <= self.screen * np.median(distances)
        return np.average(points[near], axis=0, weights=weights[near])
