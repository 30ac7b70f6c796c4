"""Pendulum in JAX: a motor that is too weak to lift a pendulum at once swings it up.

It equals Gymnasium's Pendulum-v1, which the tests step beside it.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from fedkl.simulators.spaces import Box
from fedkl.worlds.base import Continuous, Renderer, Transition, World, register_world
from fedkl.worlds.parameters import SMALL, About, Parameter, Quantity, Scalar, parameters_from

TIMESTEP = 0.05


class PendulumParams(NamedTuple):
    """The physics, and how far from upright and from rest an episode may start."""

    gravity: Quantity = 10.0
    mass: Quantity = 1.0
    length: Quantity = 1.0
    max_torque: Quantity = 2.0
    max_speed: Quantity = 8.0
    initial_angle: Quantity = math.pi
    initial_speed: Quantity = 1.0


PARAMETERS = parameters_from(
    PendulumParams(),
    gravity=About("pulls the pendulum down"),
    mass=About("of the pendulum", SMALL),
    length=About("of the pendulum", SMALL),
    max_torque=About("of the motor", 0.0),
    max_speed=About("of the pendulum", 0.0),
    initial_angle=About("largest angle of a first state, to either side of upright", 0.0),
    initial_speed=About("largest speed of a first state, to either side", 0.0),
)


class PendulumState(NamedTuple):
    """The angle from upright, which counts whole turns, and its speed."""

    angle: Scalar
    speed: Scalar


@register_world
class Pendulum(World):
    """Gymnasium's Pendulum-v1: minus the squares of angle, speed (times 0.1) and torque (times
    0.001), all before the pendulum moves.

    Actions reach from -1 to 1, the motor's limits, and what lies beyond is clipped: the torque is
    `max_torque * clip(action, -1, 1)`, and so is the torque in the reward. (Gymnasium takes the
    torque itself as the action; Gaussian policies start near unit scale.) The observation is
    cos(angle), sin(angle), speed. Numbers have the dtype of the params.
    """

    name: ClassVar[str] = "pendulum"
    summary: ClassVar[str] = "a weak motor swings up a pendulum (Gymnasium's Pendulum-v1, in JAX)"
    observation_size: ClassVar[int] = 3
    actions: ClassVar[Continuous] = Continuous(1)
    # Torque, as Gymnasium takes it.
    actuators: ClassVar[Box] = Box((-2.0,), (2.0,), (1,))
    horizon: ClassVar[int] = 200
    frames_per_second: ClassVar[float] = 1 / TIMESTEP
    playback: ClassVar[float] = 1.0
    terminates: ClassVar[bool] = False
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    params: ClassVar[type] = PendulumParams

    def reset(
        self, params: PendulumParams, key: PRNGKeyArray
    ) -> tuple[PendulumState, Float[Array, " 3"]]:
        """Angle and speed anywhere in the client's ranges, which are symmetric."""
        u = jax.random.uniform(key, (2,), jnp.result_type(*params), -1.0, 1.0)
        state = PendulumState(params.initial_angle * u[0], params.initial_speed * u[1])
        return state, _observe(state)

    def step(
        self,
        params: PendulumParams,
        state: PendulumState,
        action: Float[Array, " 1"],
        key: PRNGKeyArray,
    ) -> Transition:
        """Turn the pendulum for 0.05 s, by a semi-implicit Euler step."""
        torque = params.max_torque * jnp.clip(action[0], -1.0, 1.0)
        lean = jnp.mod(state.angle + math.pi, 2 * math.pi) - math.pi
        cost = lean * lean + 0.1 * state.speed * state.speed + 0.001 * torque * torque

        # A rod that hangs at one end: its moment of inertia is mass length^2 / 3.
        inertia = params.mass * params.length * params.length / 3
        weight = params.gravity * jnp.sin(state.angle) * 1.5 / params.length
        speed = state.speed + TIMESTEP * (weight + torque / inertia)
        speed = jnp.clip(speed, -params.max_speed, params.max_speed)
        state = PendulumState(state.angle + TIMESTEP * speed, speed)
        return Transition(state, _observe(state), -cost, jnp.asarray(False))

    def renderer(self, params: PendulumParams) -> Renderer:
        """Return a function that draws the pendulum."""
        from fedkl.worlds.classic.classic_renderer import draw_pendulum

        def draw(moment: PendulumState, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            return draw_pendulum(float(moment.angle), float(params.length))

        return draw


def _observe(state: PendulumState) -> Float[Array, " 3"]:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])
