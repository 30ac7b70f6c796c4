r"""A world of your own: pendulums on different planets, held upright by one policy.

Each client's pendulum swings under its own gravity, which no observation tells. Try it either way:

    python examples/own_world.py
    fedkl train probe-point --plugin examples/own_world.py \
        --set world.name=planets 'world.clients.gravity={uniform=[2,12]}'
"""

import sys
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

import fedkl

LIMIT, DT = 15.0, 0.05


class Planet(NamedTuple):
    """What makes a client's pendulum its own: a number for each parameter."""

    gravity: Array


class Swing(NamedTuple):
    """The angle from upright and its speed."""

    angle: Array
    speed: Array


@fedkl.register_world
class Pendulum(fedkl.World):
    """A rod of length 1 and mass 1, pushed at its hinge and punished for not standing still."""

    name: ClassVar[str] = "planets"
    summary: ClassVar[str] = "hold a pendulum upright, whatever the planet's gravity"
    observation_size: ClassVar[int] = 3
    actions: ClassVar[fedkl.Continuous] = fedkl.Continuous(1)
    horizon: ClassVar[int] = 60
    parameters: ClassVar = (fedkl.Parameter("gravity", 9.8, low=0.0, help="of the planet (m/s^2)"),)
    params: ClassVar = Planet

    def reset(self, params: Planet, key: Array) -> tuple[Swing, Array]:
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return Swing(angle, speed), _observe(Swing(angle, speed))

    def step(self, params: Planet, state: Swing, action: Array, key: Array) -> fedkl.Transition:
        push = jnp.clip(5 * action[0], -LIMIT, LIMIT)
        reward = -(_wrapped(state.angle) ** 2) - 0.1 * state.speed**2 - 0.001 * push**2
        speed = state.speed + DT * (1.5 * params.gravity * jnp.sin(state.angle) + 3 * push)
        after = Swing(state.angle + DT * speed, speed)
        return fedkl.Transition(after, _observe(after), reward, jnp.asarray(False))


def _wrapped(angle: Array) -> Array:
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi


def _observe(state: Swing) -> Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])


def main(rounds: str = "20") -> None:
    """Trains one policy for eight planets and prints how it does, on the worst of them too."""
    settings = {"world.name": "planets", "federation.clients": 8, "federation.rounds": int(rounds)}
    settings["world.clients.gravity"] = {"linspace": [2.0, 12.0]}
    for record in fedkl.Federation(fedkl.preset("probe-point", set=settings)):
        print("round {round}: return {return_mean:.1f}, worst {return_min:.1f}".format(**record))


if __name__ == "__main__":
    main(*sys.argv[1:])
