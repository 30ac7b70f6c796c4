"""The settings of measuring heterogeneity."""

from __future__ import annotations

import equinox as eqx

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.heterogeneity.measure import STATE_BASES, Measure
from fedkl.learning.settings import ALL, LOCAL, Sharing


class HeterogeneitySettings(eqx.Module):
    """Settings of the measurement of heterogeneity."""

    every: int = setting(0, "measure before every so many rounds; 0: never", low=0, static=True)
    trajectories: int = setting(
        100,
        "episodes that each client runs for it, half of them for each of two independent estimates",
        low=4,
        static=True,
    )
    basis: str = setting(
        "fourier",
        "how states are compared: smoothly (random Fourier features), or by cells of rounded "
        "observations (buckets)",
        choices=tuple(STATE_BASES),
        static=True,
    )
    features: int = setting(48, "features of the state", low=1, static=True)
    length_scale: float = setting(
        1.0,
        "how far apart states still count as alike, in deviations of an observation; of buckets, "
        "the width of a cell",
        above=0,
        static=True,
    )
    ridge: float = setting(
        1.0,
        "ridge of the fitted advantages, relative to the mean square, times the number of "
        "trajectories: with more of them less is needed, and its bias vanishes",
        above=0,
        static=True,
    )

    def __check_init__(self) -> None:
        if self.trajectories % 2:
            raise UserError(
                f"heterogeneity.trajectories must be even, not {self.trajectories}: each half "
                "gets as many"
            )

    def work(self) -> Measure:
        """Return the work that clients are asked to do."""
        ridge = self.ridge / self.trajectories
        return Measure(self.trajectories, self.basis, self.features, self.length_scale, ridge)


def check_basis(sharing: Sharing) -> None:
    """Refuse to measure heterogeneity where clients share no basis to measure it in.

    Raises:
        UserError: each would compute its features from observations of a scale of its own, or has
            a policy of its own.
    """
    if sharing.personal == ALL:
        raise UserError(
            "federation.personal must not be all where the level of heterogeneity is measured: it "
            "is that of clients that share a policy"
        )
    if sharing.observations == LOCAL:
        raise UserError(
            "federation.observation_statistics must be federated or none where the level of "
            "heterogeneity is measured, not local: what clients see each on a scale of their own "
            "cannot be compared"
        )
