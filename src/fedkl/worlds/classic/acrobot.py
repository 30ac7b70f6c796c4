"""Acrobot in JAX: two links hang from a bar, and only the joint between them has a motor.

It equals Gymnasium's Acrobot-v1 (the equations of Sutton and Barto's book, by a Runge-Kutta step),
which the tests step beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from fedkl.worlds.base import Discrete, Renderer, Transition, World, register_world
from fedkl.worlds.parameters import SMALL, About, Parameter, Quantity, Scalar, parameters_from

TIMESTEP = 0.2
MAX_SPEED_1, MAX_SPEED_2 = 4 * math.pi, 9 * math.pi


class AcrobotParams(NamedTuple):
    """The physics, the goal, and how far from hanging at rest all numbers of a first state may be.

    Gymnasium has no name for `gravity`, and measures the tip's height as if both links had length
    1. Here the height is that of the links as they are. `link_length_2` acts on it alone: how the
    second link moves is a matter of its mass, centre of mass and moment of inertia.
    """

    gravity: Quantity = 9.8
    link_length_1: Quantity = 1.0
    link_length_2: Quantity = 1.0
    link_mass_1: Quantity = 1.0
    link_mass_2: Quantity = 1.0
    link_com_1: Quantity = 0.5
    link_com_2: Quantity = 0.5
    link_moi: Quantity = 1.0
    max_torque: Quantity = 1.0
    goal_height: Quantity = 1.0
    initial_bound: Quantity = 0.1


PARAMETERS = parameters_from(
    AcrobotParams(),
    gravity=About("pulls both links down"),
    link_length_1=About("of the upper link", SMALL),
    link_length_2=About("of the lower link; acts on the height of the tip alone", SMALL),
    link_mass_1=About("of the upper link", SMALL),
    link_mass_2=About("of the lower link", SMALL),
    link_com_1=About("from the bar to the upper link's centre of mass", 0.0),
    link_com_2=About("from the joint to the lower link's centre of mass", 0.0),
    link_moi=About("either link's moment of inertia about its centre of mass", SMALL),
    max_torque=About("of the motor at the joint"),
    goal_height=About("above the bar, of the tip"),
    initial_bound=About("largest size of each number of a first state", 0.0),
)


class AcrobotState(NamedTuple):
    """The first link's angle from hanging, the second's from the first, and their speeds.

    Angles lie in [-pi, pi].
    """

    angle_1: Scalar
    angle_2: Scalar
    speed_1: Scalar
    speed_2: Scalar


@register_world
class Acrobot(World):
    """Gymnasium's Acrobot-v1: -1 for every step until the tip is above the goal's height.

    Actions 0, 1 and 2 turn the joint by a torque of -max_torque, 0 and max_torque. The step that
    ends the episode costs nothing. The observation is cos and sin of the first angle, of the
    second, and the two speeds. Numbers have the dtype of the params.
    """

    name: ClassVar[str] = "acrobot"
    summary: ClassVar[str] = "two links swing up their tip (Gymnasium's Acrobot-v1, in JAX)"
    observation_size: ClassVar[int] = 6
    actions: ClassVar[Discrete] = Discrete(3)
    horizon: ClassVar[int] = 500
    frames_per_second: ClassVar[float] = 3 / TIMESTEP
    playback: ClassVar[float] = 3.0
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    params: ClassVar[type] = AcrobotParams

    def reset(
        self, params: AcrobotParams, key: PRNGKeyArray
    ) -> tuple[AcrobotState, Float[Array, " 6"]]:
        """Almost hanging and almost at rest."""
        u = jax.random.uniform(key, (4,), jnp.result_type(*params), -1.0, 1.0)
        state = AcrobotState(*(params.initial_bound * u))
        return state, _observe(state)

    def step(
        self,
        params: AcrobotParams,
        state: AcrobotState,
        action: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> Transition:
        """Turn the joint for 0.2 s, by one step of the classical Runge-Kutta method."""
        torque = params.max_torque * (action - 1)
        first = _change(params, state, torque)
        second = _change(params, _moved(state, TIMESTEP / 2, first), torque)
        third = _change(params, _moved(state, TIMESTEP / 2, second), torque)
        fourth = _change(params, _moved(state, TIMESTEP, third), torque)
        stages = zip(first, second, third, fourth, strict=True)
        mean = AcrobotState(*((a + 2 * (b + c) + d) / 6 for a, b, c, d in stages))
        moved = _moved(state, TIMESTEP, mean)
        state = AcrobotState(
            _wrapped(moved.angle_1),
            _wrapped(moved.angle_2),
            jnp.clip(moved.speed_1, -MAX_SPEED_1, MAX_SPEED_1),
            jnp.clip(moved.speed_2, -MAX_SPEED_2, MAX_SPEED_2),
        )
        height = -params.link_length_1 * jnp.cos(state.angle_1)
        height -= params.link_length_2 * jnp.cos(state.angle_1 + state.angle_2)
        arrived = height > params.goal_height
        reward = jnp.where(arrived, 0.0, -jnp.ones_like(height))
        return Transition(state, _observe(state), reward, arrived)

    @property
    def legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        """The height that the tip must pass."""
        from fedkl.worlds.classic.classic_renderer import GOAL

        return (GOAL,)

    def renderer(self, params: AcrobotParams) -> Renderer:
        """Return a function that draws both links and the goal's height."""
        from fedkl.worlds.classic.classic_renderer import draw_acrobot

        lengths = float(params.link_length_1), float(params.link_length_2)

        def draw(moment: AcrobotState, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            angles = float(moment.angle_1), float(moment.angle_2)
            return draw_acrobot(angles, lengths, float(params.goal_height))

        return draw


def _change(params: AcrobotParams, state: AcrobotState, torque: Scalar) -> AcrobotState:
    """Return the state's derivative.

    The mass matrix is [[m11, m12], [m12, m22]]; what weight and rotation (centrifugal and Coriolis
    forces) do to either joint is on the other side.
    """
    angle_1, angle_2, speed_1, speed_2 = state
    moment_2 = params.link_mass_2 * params.link_com_2
    moment_1 = params.link_mass_1 * params.link_com_1 + params.link_mass_2 * params.link_length_1
    coupling = moment_2 * params.link_length_1
    bend, twist = coupling * jnp.cos(angle_2), coupling * jnp.sin(angle_2)

    m22 = moment_2 * params.link_com_2 + params.link_moi
    m12 = m22 + bend
    m11 = (
        m12
        + bend
        + params.link_moi
        + params.link_mass_1 * params.link_com_1 * params.link_com_1
        + params.link_mass_2 * params.link_length_1 * params.link_length_1
    )
    weight_2 = moment_2 * params.gravity * jnp.sin(angle_1 + angle_2)
    weight_1 = moment_1 * params.gravity * jnp.sin(angle_1) + weight_2
    force_1 = twist * speed_2 * (speed_2 + 2 * speed_1) - weight_1
    force_2 = torque - twist * speed_1 * speed_1 - weight_2
    determinant = m11 * m22 - m12 * m12
    return AcrobotState(
        speed_1,
        speed_2,
        (m22 * force_1 - m12 * force_2) / determinant,
        (m11 * force_2 - m12 * force_1) / determinant,
    )


def _moved(state: AcrobotState, time: float, change: AcrobotState) -> AcrobotState:
    return AcrobotState(*(x + time * dx for x, dx in zip(state, change, strict=True)))


def _wrapped(angle: Scalar) -> Scalar:
    return angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))


def _observe(state: AcrobotState) -> Float[Array, " 6"]:
    angles = (state.angle_1, state.angle_2)
    waves = [wave(angle) for angle in angles for wave in (jnp.cos, jnp.sin)]
    return jnp.stack([*waves, state.speed_1, state.speed_2])
