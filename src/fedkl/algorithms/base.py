"""What an algorithm may add to local policy optimisation with a local KL penalty.

Each hook below adds nothing by default, so the base class is FedAvg, and an algorithm's file says
only what it changes. Hooks are called inside jitted code: they must be pure, and number fields of
an algorithm are traced (changing them compiles nothing again).
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import equinox as eqx
from jaxtyping import Array, Float, Int, PyTree

from fedkl.learning.distributions import DISTANCES
from fedkl.learning.minibatches import weighted_mean
from fedkl.learning.policy_optimisation import Measured, View
from fedkl.registry import Registry
from fedkl.settings import setting

ALGORITHMS = Registry("algorithm")
register_algorithm = ALGORITHMS.register

P = TypeVar("P", bound=PyTree)


class Algorithm(eqx.Module):
    """Base of all algorithms: local policy optimisation, averaged by the server."""

    name: ClassVar[str]
    summary: ClassVar[str]

    distance: str = setting(
        "sqrt_kl",
        "distance between the global and a local policy (what kl_global reports)",
        choices=tuple(DISTANCES),
        static=True,
    )

    def coefficients(self) -> dict[str, float]:
        """The coefficients each client adapts, with their first values."""
        return {}

    def across_rounds(self) -> dict[str, str]:
        """For each coefficient: kept, averaged or reset between rounds (kept if not named)."""
        return {}

    def penalty(self, coefficients: dict[str, PyTree], view: View) -> Float[Array, ""] | float:
        """What is taken away from the local objective h_n, on a minibatch."""
        return 0.0

    def gradient(self, gradient: P, step: Int[Array, ""]) -> P:
        """The gradient that is applied for the `step`-th local gradient of the round."""
        return gradient

    def adapt(self, coefficients: dict[str, PyTree], measured: Measured) -> dict[str, PyTree]:
        """The coefficients for the next iteration."""
        return coefficients

    def distance_to_global(self, view: View) -> Float[Array, ""]:
        """The mean distance from the global policy over the states of a batch."""
        distances = DISTANCES[self.distance](view.global_actions, view.actions)
        return weighted_mean(distances, view.weight)
