"""FedKL: keeps the local policy's behaviour near the global policy's (the paper's Algorithm 2)."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Array, Float, PyTree

from fedkl.algorithms.base import Algorithm, register_algorithm
from fedkl.learning.adaptation import Bounds, capped, towards_target
from fedkl.learning.policy_optimisation import Measured, View
from fedkl.learning.settings import ACROSS_ROUNDS
from fedkl.settings import setting


@register_algorithm
class FedKL(Algorithm):
    """Adds c1 E_s[ sqrt(KL(pi^t || pi) / 2) ] to the local penalty (the second term of the paper's
    equation (finallocalobj)) and adapts c1 so that the distance meets d_global: a penalty in
    distribution space, where FedProx's is in parameter space."""

    name: ClassVar[str] = "fedkl"
    summary: ClassVar[str] = "adds c1 sqrt(KL(pi^t || pi) / 2), a penalty in distribution space"

    d_global: float = setting(0.6, "target distance of a local policy from the global", above=0)
    c1: float = setting(1e-3, "first coefficient of the global penalty", above=0)
    c1_bounds: tuple[float, float] = setting((1e-4, 20.0), "range of c1", above=0)
    c1_cap_by_advantage: bool = setting(
        False, "also keep c1 below max advantage / measured distance", static=True
    )
    c1_across_rounds: str = setting("kept", "c1 between rounds", choices=ACROSS_ROUNDS, static=True)

    def coefficients(self) -> dict[str, float]:
        return {"c1": self.c1}

    def across_rounds(self) -> dict[str, str]:
        return {"c1": self.c1_across_rounds}

    def penalty(self, coefficients: dict[str, PyTree], view: View) -> Float[Array, ""]:
        return coefficients["c1"] * self.distance_to_global(view)

    def adapt(self, coefficients: dict[str, PyTree], measured: Measured) -> dict[str, PyTree]:
        bounds: Bounds = self.c1_bounds
        if self.c1_cap_by_advantage:
            bounds = capped(bounds, measured.max_advantage, measured.d_global)
        c1 = towards_target(coefficients["c1"], measured.d_global, self.d_global, bounds)
        return coefficients | {"c1": c1}
