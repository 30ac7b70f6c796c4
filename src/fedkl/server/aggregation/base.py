"""The three links of aggregation, each small, registered by name and replaceable by a plugin.

The fields of a link are its settings (see `fedkl.setting`); they appear in a config flat
in the table `[aggregation]`, beside the names of the links. All of this runs on the server, on
NumPy arrays in float64, outside of compiled code.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray

from fedkl.core.registry import Registry

REDUCERS = Registry("reducer", "Reducer")
register_reducer = REDUCERS.register
"""Adds a reducer under its `name`, for configs to ask for; decorates the class."""

TRANSFORMS = Registry("transform", "Transform")
register_transform = TRANSFORMS.register
"""Adds a transform under its `name`, for configs to ask for; decorates the class."""

STEPS = Registry("server step", "Step")
register_step = STEPS.register
"""Adds a server step under its `name`, for configs to ask for; decorates the class."""


class Reducer(eqx.Module):
    """From what the clients sent to one point."""

    name: ClassVar[str]
    summary: ClassVar[str]
    merges_moments: ClassVar[bool] = False
    """Running statistics are merged exactly; else they are reduced like parameters, because an
    exact merge lets a single client move them anywhere."""

    def check(self, clients_per_round: int) -> None:
        """Refuse settings that K clients in a round cannot satisfy.

        Raises:
            UserError: K is too small.
        """

    def after_refusing(self, refused: int) -> Reducer:
        """The reducer of a round in which validation has refused so many clients.

        One that bears a number of bad clients has to bear so many fewer: those are found.
        """
        return self

    @abstractmethod
    def __call__(
        self, points: Float[np.ndarray, "k p"], weights: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " p"]:
        """The point that stands for all.

        Rejected clients are missing, so k may be smaller than what `check` was given; it is at
        least 1, and one point is returned as it is.

        Args:
            points: the parameters of a part of the model, a row for each client, in ascending
                order of the client's number.
            weights: the steps that each client trained on.
        """


class Transform(eqx.Module):
    """A transform of each client's move (its parameters minus those it started from), before moves
    are reduced."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def __call__(self, move: Float[np.ndarray, " p"], key: PRNGKeyArray) -> Float[np.ndarray, " p"]:
        """The move that counts.

        Args:
            move: of one client, in one round.
            key: of this client in this round, for transforms that draw random numbers.
        """


class Step(eqx.Module):
    """A server's step from the reduced model to the next, in optax's shape."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def optimiser(self) -> optax.GradientTransformation | None:
        """Return the transformation of the pseudo-gradient (the old model minus the reduced) into
        an update of the old model; None takes the reduced model as it is.

        Its `update` is given a `key` of the round as an extra argument, for steps that add noise.
        """
