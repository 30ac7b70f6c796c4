"""FedKL: keeps the local policy's behaviour near the global policy's (the paper's Algorithm 2)."""

from __future__ import annotations

import math
from typing import ClassVar

from jaxtyping import Float, Int

from fedkl.algorithms.base import Algorithm, RoundResult, register_algorithm
from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.io.arrays import Array
from fedkl.learning.penalty import (
    ACROSS_ROUNDS,
    SCHEDULES,
    Bounds,
    Coefficient,
    Number,
    capped,
    check_bounds,
    towards_target,
)
from fedkl.learning.policy_optimisation import HookInput, Measured


@register_algorithm
class FedKL(Algorithm):
    """Adds c1 E_s[ sqrt(KL(pi^t || pi) / 2) ] to the local penalty (the second term of the paper's
    eq. 24) and adapts c1 so that the distance meets d_global: a penalty in
    distribution space, where FedProx's is in parameter space."""

    name: ClassVar[str] = "fedkl"
    summary: ClassVar[str] = "adds c1 sqrt(KL(pi^t || pi) / 2), a penalty in distribution space"

    d_global: float = setting(0.6, "target distance of a local policy from the global", above=0)
    c1: float = setting(1e-3, "first coefficient of the global penalty", above=0)
    c1_adapted: str = setting(
        "iteration",
        "when c1 is adapted: after every iteration (the paper's rule), once at the end of a round, "
        "or after every iteration to a target that grows from 0 to d_global in the round, or to "
        "that of a plugin's schedule",
        choices=SCHEDULES,
        static=True,
    )
    c1_bounds: tuple[float, float] = setting((1e-4, 20.0), "range of c1", above=0)
    c1_cap_by_advantage: bool = setting(
        False, "also keep c1 below max advantage / measured distance", static=True
    )
    c1_across_rounds: str = setting("kept", "c1 between rounds", choices=ACROSS_ROUNDS, static=True)

    def __check_init__(self) -> None:
        check_bounds("algorithm.c1_bounds", self.c1_bounds)
        if self.c1_cap_by_advantage and self.c1_adapted == "round":
            raise UserError(
                "algorithm.c1_cap_by_advantage must be false where algorithm.c1_adapted is round: "
                "the cap is an iteration's"
            )
        if self.c1_across_rounds == "reset" and self.c1_adapted == "round":
            raise UserError(
                "algorithm.c1_across_rounds must not be reset where algorithm.c1_adapted is round: "
                "c1 would never be anything but algorithm.c1"
            )

    def coefficients(self) -> dict[str, Coefficient]:
        growth = 2.0 if self.c1_adapted == "round" else math.inf
        return {"c1": Coefficient(self.c1, self.c1_bounds, self.c1_across_rounds, growth)}

    def penalty(self, at: HookInput) -> Float[Array, ""]:
        return at.coefficients["c1"] * self.distance_to_global(at)

    def adapt(self, at: HookInput, measured: Measured) -> dict[str, Float[Array, ""]]:
        if self.c1_adapted == "round":
            return at.coefficients
        bounds: Bounds = self.c1_bounds
        if self.c1_cap_by_advantage:
            bounds = capped(bounds, measured.max_advantage, measured.distance_global)
        target = self._target(at.iteration, at.learner.iterations)
        c1 = towards_target(at.coefficients["c1"], measured.distance_global, target, bounds)
        return at.coefficients | {"c1": c1}

    def adapt_after_round(self, result: RoundResult) -> dict[str, Float[Array, ""]]:
        if self.c1_adapted != "round":
            return result.coefficients
        c1 = result.coefficients["c1"]
        iterations = result.learner.iterations
        target = self._target(iterations - 1, iterations)
        after = towards_target(c1, result.distance_global, target, self.c1_bounds)
        return result.coefficients | {"c1": after}

    def _target(self, iteration: Int[Array, ""] | int, iterations: int) -> Number:
        return SCHEDULES[self.c1_adapted](iteration, iterations, self.d_global)
