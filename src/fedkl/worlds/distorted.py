"""A world whose actions and observations are distorted: a wrapper around any world in JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt8

from fedkl.worlds import draws
from fedkl.worlds.base import AnyWorld, Continuous, Discrete, Renderer, Transition, World
from fedkl.worlds.heterogeneous import Differences, HeterogeneousWorld

_W = TypeVar("_W", bound=AnyWorld)


class DistortedParams(NamedTuple):
    """Distortions of a client's actions and observations; None: no client has this one."""

    world: PyTree
    """The params of the world inside."""
    action_offset: Float[Array, "*n a"] | None = None
    action_noise: Float[Array, "*n"] | None = None
    observation_noise: Float[Array, "*n"] | None = None
    action_delay: Int[Array, "*n"] | None = None


class DistortedState(NamedTuple):
    """The state of the world inside, and the actions that are still on their way."""

    world: PyTree
    waiting: Array | None
    """The last ones that the policy took, the newest first; None: actions are never late."""


class Distorted(World):
    """Between policy and world: actions come late, then an offset and noise are added to them;
    noise is added to what the world shows.

    Until the first action has arrived, zeros act (action 0, where actions are discrete). Rewards
    are for the actions that reach the world.
    """

    name: ClassVar[str] = "distorted"
    summary: ClassVar[str] = "a world whose actions and observations are distorted"

    world: World = eqx.field(kw_only=True)
    longest: int = eqx.field(static=True, kw_only=True)
    """Steps that an action may be late."""

    @property
    def observation_size(self) -> int:
        """As the world inside has it; so are the next four."""
        return self.world.observation_size

    @property
    def actions(self) -> Continuous | Discrete:
        return self.world.actions

    @property
    def horizon(self) -> int:
        return self.world.horizon

    @property
    def terminates(self) -> bool:
        return self.world.terminates

    @property
    def frames_per_second(self) -> float:
        return self.world.frames_per_second

    @property
    def playback(self) -> float | None:
        return self.world.playback

    @property
    def legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        return self.world.legend

    def clients(self, n: int, key: PRNGKeyArray) -> DistortedParams:
        """Return the params of n clients, as the table of the world inside has them."""
        own = {parameter.name for parameter in self.world.parameters}
        parameters = [
            parameter for parameter in self.world.all_parameters if parameter.name not in own
        ]
        rows = self.world.drawn(parameters, n, key, jnp.result_type(float))
        inside = self.world.clients(n, key)
        return DistortedParams(inside, **{k: jnp.asarray(row) for k, row in rows.items()})

    def reset(
        self, params: DistortedParams, key: PRNGKeyArray
    ) -> tuple[DistortedState, Float[Array, " o"]]:
        """Return the world's first state, with nothing on its way."""
        inside, seeing = _split(params, key, 2)
        state, observation = self.world.reset(params.world, inside)
        waiting = None
        if self.longest:
            waiting = (
                jnp.zeros((self.longest, self.actions.size), observation.dtype)
                if isinstance(self.actions, Continuous)
                else jnp.zeros(self.longest, int)
            )
        return DistortedState(state, waiting), _noisy(observation, params.observation_noise, seeing)

    def step(
        self, params: DistortedParams, state: DistortedState, action: Any, key: PRNGKeyArray
    ) -> Transition:
        """Step the world by an action that is late, shifted and noisy."""
        inside, acting, seeing = _split(params, key, 3)
        waiting = state.waiting
        if waiting is not None:
            on_their_way = jnp.concatenate([jnp.asarray(action, waiting.dtype)[None], waiting])
            waiting = on_their_way[:-1]
            action = on_their_way[params.action_delay]
        if params.action_offset is not None:
            action = action + params.action_offset
        action = _noisy(action, params.action_noise, acting)
        moved = self.world.step(params.world, state.world, action, inside)
        return moved._replace(
            state=DistortedState(moved.state, waiting),
            observation=_noisy(moved.observation, params.observation_noise, seeing),
        )

    def renderer(self, params: DistortedParams) -> Renderer:
        """Return the renderer of the world inside."""
        inside = self.world.renderer(params.world)

        def draw(moment: DistortedState, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            return inside(moment.world, step, total)

        return draw


def distorted(world: AnyWorld) -> AnyWorld:
    """Wrap a world as its table asks for, or return it as it is if it asks for nothing."""
    if not isinstance(world, World):  # others have no distortions to ask for
        return world
    own = {parameter.name for parameter in world.parameters}
    named = {
        parameter: draw
        for parameter, (_, draw) in world.differences.drawn().items()
        if parameter not in own
    }
    if not named:
        return world
    longest = draws.bounds(named["action_delay"])[1] if "action_delay" in named else 0
    return Distorted(world=world, longest=int(longest))


def without_table(world: _W) -> _W:
    """Return a world without its table, which says something of clients and nothing of the code.

    Two federations that differ in their tables alone thus share what is compiled.
    """
    if isinstance(world, Distorted):
        return dataclasses.replace(world, world=without_table(world.world))
    if isinstance(world, HeterogeneousWorld) and world.differences:
        return dataclasses.replace(world, differences=Differences())
    return world


def _split(params: DistortedParams, key: PRNGKeyArray, number: int) -> Sequence[PRNGKeyArray]:
    """Split a key; without noise the world inside has the key that it would have alone."""
    quiet = params.action_noise is None and params.observation_noise is None
    return [key] * number if quiet else list(jax.random.split(key, number))


def _noisy(x: Any, deviation: Float[Array, ""] | None, key: PRNGKeyArray) -> Any:
    return x if deviation is None else x + deviation * jax.random.normal(key, x.shape, x.dtype)
