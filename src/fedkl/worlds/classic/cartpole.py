"""CartPole in JAX: a cart is pushed to and fro so that the pole on it stays upright.

It equals Gymnasium's CartPole-v1, which the tests step beside it. All arithmetic is on scalars, so
that a vmapped step compiles to a few fused loops; so it is in the other worlds of this package.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from fedkl.worlds.base import Discrete, Renderer, Transition, World, register_world
from fedkl.worlds.parameters import (
    INITIAL_STATE,
    SMALL,
    About,
    Parameter,
    Quantity,
    Scalar,
    parameters_from,
)

TIMESTEP = 0.02
POSITION_LIMIT = 2.4
ANGLE_LIMIT = math.radians(12)


class CartPoleParams(NamedTuple):
    """The physics, and the box in which all four numbers of a first state are drawn."""

    gravity: Quantity = 9.8
    masscart: Quantity = 1.0
    masspole: Quantity = 0.1
    length: Quantity = 0.5
    force_mag: Quantity = 10.0
    initial_low: Quantity = -0.05
    initial_high: Quantity = 0.05


PARAMETERS = (
    *parameters_from(
        CartPoleParams(),
        gravity=About("pulls the pole down"),
        masscart=About("mass of the cart", SMALL),
        masspole=About("mass of the pole", SMALL),
        length=About("from the hinge to the pole's centre: half of its length", SMALL),
        force_mag=About("by which the cart is pushed"),
        initial_low=About("least value of each number of a first state"),
        initial_high=About("largest value of each number of a first state"),
    ),
    INITIAL_STATE,
)


class CartPoleState(NamedTuple):
    """Position of the cart, angle of the pole from upright, and their velocities."""

    position: Scalar
    velocity: Scalar
    angle: Scalar
    angular_velocity: Scalar


@register_world
class CartPole(World):
    """Gymnasium's CartPole-v1: 1 for every step until the pole leans by 12 degrees or the cart is
    2.4 from the middle.

    Action 1 pushes to the right, action 0 to the left. The step that ends the episode is rewarded
    like any other. The observation is the state. Numbers have the dtype of the params.
    """

    name: ClassVar[str] = "cartpole"
    summary: ClassVar[str] = "a cart keeps a pole upright (Gymnasium's CartPole-v1, in JAX)"
    observation_size: ClassVar[int] = 4
    actions: ClassVar[Discrete] = Discrete(2)
    horizon: ClassVar[int] = 500
    frames_per_second: ClassVar[float] = 1 / TIMESTEP
    playback: ClassVar[float] = 1.0
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    params: ClassVar[type] = CartPoleParams

    def reset(
        self, params: CartPoleParams, key: PRNGKeyArray
    ) -> tuple[CartPoleState, Float[Array, " 4"]]:
        """Anywhere in the client's box."""
        dtype = jnp.result_type(*params)
        low, high = params.initial_low, params.initial_high
        state = CartPoleState(*jax.random.uniform(key, (4,), dtype, low, high))
        return state, jnp.stack(state)

    def step(
        self,
        params: CartPoleParams,
        state: CartPoleState,
        action: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> Transition:
        """Push the cart for 0.02 s, by an explicit Euler step."""
        position, velocity, angle, angular_velocity = state
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        mass = params.masscart + params.masspole
        moment = params.masspole * params.length
        force = jnp.where(action == 1, params.force_mag, -params.force_mag)
        # The cart's acceleration if the pole did not turn faster or slower.
        push = (force + moment * angular_velocity * angular_velocity * sin) / mass
        turn = (params.gravity * sin - push * cos) / (
            params.length * (4 / 3 - params.masspole * cos * cos / mass)
        )
        state = CartPoleState(
            position + TIMESTEP * velocity,
            velocity + TIMESTEP * (push - moment * turn * cos / mass),
            angle + TIMESTEP * angular_velocity,
            angular_velocity + TIMESTEP * turn,
        )
        fallen = jnp.abs(state.angle) > ANGLE_LIMIT
        away = jnp.abs(state.position) > POSITION_LIMIT
        return Transition(state, jnp.stack(state), jnp.ones_like(state.position), fallen | away)

    def renderer(self, params: CartPoleParams) -> Renderer:
        """Return a function that draws cart and pole."""
        from fedkl.worlds.classic.classic_renderer import draw_cartpole

        def draw(moment: CartPoleState, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            where = float(moment.position), float(moment.angle)
            return draw_cartpole(*where, float(params.length), POSITION_LIMIT)

        return draw
