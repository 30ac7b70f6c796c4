"""The continuous Mountain Car in JAX: a car too weak for the slope gathers speed in a valley.

It equals Gymnasium's MountainCarContinuous-v0, which the tests step beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from fedkl.simulators.spaces import Box
from fedkl.worlds.base import Continuous, Renderer, Transition, World, register_world
from fedkl.worlds.parameters import (
    INITIAL_STATE,
    About,
    Parameter,
    Quantity,
    Scalar,
    parameters_from,
)

LEFT_WALL, RIGHT_END = -1.2, 0.6
MAX_SPEED = 0.07
GOAL_REWARD = 100.0


class MountainCarParams(NamedTuple):
    """The physics, the goal, and where along the valley an episode may start.

    Gymnasium has no name for `gravity`: it is the 0.0025 by which the slope pulls.
    """

    power: Quantity = 0.0015
    gravity: Quantity = 0.0025
    goal_position: Quantity = 0.45
    goal_velocity: Quantity = 0.0
    initial_low: Quantity = -0.6
    initial_high: Quantity = -0.4


PARAMETERS = (
    *parameters_from(
        MountainCarParams(),
        power=About("of the motor"),
        gravity=About("by which the slope pulls"),
        goal_position=About("where the goal is", LEFT_WALL, RIGHT_END),
        goal_velocity=About("how fast the car must be there, at least", -MAX_SPEED, MAX_SPEED),
        initial_low=About("leftmost start", LEFT_WALL, RIGHT_END),
        initial_high=About("rightmost start", LEFT_WALL, RIGHT_END),
    ),
    INITIAL_STATE,
)


class MountainCarState(NamedTuple):
    """Position of the car along the valley, whose bottom is at -pi/6, and its velocity."""

    position: Scalar
    velocity: Scalar


@register_world
class MountainCarContinuous(World):
    """Gymnasium's MountainCarContinuous-v0: 100 for the goal, minus 0.1 action² in every step.

    The episode ends at the goal, if the car is at least as fast there as `goal_velocity`. Actions
    reach from -1 to 1, the motor's limits, and what lies beyond is clipped, in the reward too.
    (Gymnasium charges for the action before it is clipped.) The observation is the state. Numbers
    have the dtype of the params.
    """

    name: ClassVar[str] = "mountain-car-continuous"
    summary: ClassVar[str] = (
        "a weak car gathers speed for a slope (Gymnasium's MountainCarContinuous-v0, in JAX)"
    )
    observation_size: ClassVar[int] = 2
    actions: ClassVar[Continuous] = Continuous(1)
    actuators: ClassVar[Box] = Box((-1.0,), (1.0,), (1,))
    horizon: ClassVar[int] = 999
    frames_per_second: ClassVar[float] = 30.0
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    params: ClassVar[type] = MountainCarParams

    def reset(
        self, params: MountainCarParams, key: PRNGKeyArray
    ) -> tuple[MountainCarState, Float[Array, " 2"]]:
        """Start at rest, anywhere in the client's range."""
        dtype = jnp.result_type(*params)
        position = jax.random.uniform(key, (), dtype, params.initial_low, params.initial_high)
        state = MountainCarState(position, jnp.zeros((), dtype))
        return state, jnp.stack(state)

    def step(
        self,
        params: MountainCarParams,
        state: MountainCarState,
        action: Float[Array, " 1"],
        key: PRNGKeyArray,
    ) -> Transition:
        """Drive one step; at the left wall the car stops dead."""
        force = jnp.clip(action[0], -1.0, 1.0)
        pull = params.gravity * jnp.cos(3 * state.position)
        velocity = jnp.clip(state.velocity + params.power * force - pull, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, LEFT_WALL, RIGHT_END)
        velocity = jnp.where((position <= LEFT_WALL) & (velocity < 0), 0.0, velocity)

        arrived = (position >= params.goal_position) & (velocity >= params.goal_velocity)
        reward = jnp.where(arrived, GOAL_REWARD, 0.0) - 0.1 * force * force
        state = MountainCarState(position, velocity)
        return Transition(state, jnp.stack(state), reward, arrived)

    @property
    def legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        """The goal's flag."""
        from fedkl.worlds.classic.classic_renderer import GOAL

        return (GOAL,)

    def renderer(self, params: MountainCarParams) -> Renderer:
        """Return a function that draws the car in its valley."""
        from fedkl.worlds.classic.classic_renderer import draw_mountain_car

        goal = float(params.goal_position)

        def draw(moment: MountainCarState, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            return draw_mountain_car(float(moment.position), goal, LEFT_WALL, RIGHT_END)

        return draw
