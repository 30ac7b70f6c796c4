"""The paper's rule for adaptive penalty coefficients, for c2 and c1 alike, and targets for it."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.io.arrays import Array

Number = Float[Array, ""] | float
Bounds = tuple[Number, Number]

ACROSS_ROUNDS = ("kept", "averaged", "reset")
"""What becomes of an adaptive coefficient between rounds: every client keeps its own, the server
averages it with the parameters and sends it back, or it starts anew."""


class Coefficient(NamedTuple):
    """A penalty coefficient that each client adapts."""

    first: float
    bounds: tuple[float, float]
    """It never leaves these; a client that sends one that does is not believed."""
    across_rounds: str = "kept"
    """One of `ACROSS_ROUNDS`."""
    growth: float = math.inf
    """Factor by which it can grow in a round at the most; a client whose grows faster is not
    believed. The paper's rule doubles it at the most, each time that it is applied."""


def check_bounds(where: str, bounds: tuple[float, float]) -> None:
    """Refuse a range whose ends are the wrong way round.

    Raises:
        UserError: names the setting.
    """
    low, high = bounds
    if low > high:
        raise UserError(f"{where} must be in ascending order, not {low}, {high}")


def towards_target(
    coefficient: Float[Array, ""],
    measured: Float[Array, ""],
    target: Number,
    bounds: Bounds,
) -> Float[Array, ""]:
    """The paper's adaptive rule for c1 and c2 ("Adaptive Penalty Coefficients").

    Halves the coefficient when the measured distance is below target / 1.1, doubles it when it is
    above 1.1 * target, and keeps it inside `bounds`.

    Example:
        >>> float(towards_target(jnp.array(1.0), jnp.array(0.5), 0.1, (0.1, 20.0)))
        2.0
        >>> float(towards_target(jnp.array(1.0), jnp.array(0.105), 0.1, (0.1, 20.0)))
        1.0
        >>> float(towards_target(jnp.array(0.15), jnp.array(0.01), 0.1, (0.1, 20.0)))
        0.10000000149011612
    """
    factor = jnp.where(measured < target / 1.1, 0.5, jnp.where(measured > target * 1.1, 2.0, 1.0))
    low, high = bounds
    return jnp.clip(coefficient * factor, low, high)


def capped(bounds: Bounds, max_advantage: Float[Array, ""], measured: Float[Array, ""]) -> Bounds:
    """`bounds`, the upper one lowered to max advantage / measured distance (the authors' code).

    A distance of 0 caps nothing: without any advantage the quotient would be 0 / 0.
    """
    low, high = bounds
    apart = measured > 0
    cap = jnp.where(apart, max_advantage / jnp.where(apart, measured, 1.0), jnp.inf)
    return low, jnp.maximum(low, jnp.minimum(high, cap))


# Compiled code knows a schedule by its name alone.
SCHEDULES = Registry("schedule", replaced=jax.clear_caches)
register_schedule = SCHEDULES.register
"""Adds a schedule of the target that c1 is adapted to after every iteration, under the function's
own name, for `algorithm.c1_adapted`; decorates it. It is a function of the iteration (from 0,
traced), of the number of iterations in a round, and of the target of a whole round (d_global)."""

Iteration = Int[Array, ""] | int


@register_schedule
def iteration(iteration: Iteration, iterations: int, d_global: Number) -> Number:
    """d_global all along: the paper's rule."""
    return d_global


@register_schedule
def ramp(iteration: Iteration, iterations: int, d_global: Number) -> Number:
    """A target that grows from 0 to d_global in the round."""
    return d_global * (iteration + 1) / iterations


@register_schedule
def round(iteration: Iteration, iterations: int, d_global: Number) -> Number:
    """d_global, for a coefficient that is adapted once, when the round is over."""
    return d_global
