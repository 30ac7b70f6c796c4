"""Episodes inside jit: whole episodes of a world made of pure functions, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, PRNGKeyArray, PyTree

from fedkl.arrays import Array
from fedkl.clients.sources.base import Recording
from fedkl.learning.trajectories import Trajectories
from fedkl.worlds.base import World

Act = Callable[[Float[Array, "n o"], PRNGKeyArray], Array]


class Traced(eqx.Module):
    """One client's world: pure functions and that client's row of params."""

    world: World
    params: PyTree

    def collect(self, behaviour: Act, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Runs `episodes` episodes at once.

        Args:
            behaviour: maps a batch of observations and a key to a batch of actions.
            episodes: how many.
            key: for everything random in it.
        """
        reset_key, step_key = jax.random.split(key)
        state, observation = jax.vmap(self.world.reset, in_axes=(None, 0))(
            self.params, jax.random.split(reset_key, episodes)
        )

        def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            state, observation, alive = carry
            act_key, world_key = jax.random.split(key)
            # What is left out by a weight of 0 must be finite: 0 times NaN is NaN.
            observation = jnp.where(alive[:, None], observation, 0.0)
            action = behaviour(observation, act_key)
            next_state, next_observation, reward, terminated = jax.vmap(
                self.world.step, in_axes=(None, 0, 0, 0)
            )(self.params, state, action, jax.random.split(world_key, episodes))
            reward = jnp.where(alive, reward, 0.0)
            seen = (observation, action, reward, terminated & alive, alive)
            return (next_state, next_observation, alive & ~terminated), seen

        start = (state, observation, jnp.ones(episodes, bool))
        keys = jax.random.split(step_key, self.world.horizon)
        (_, last_observation, _), seen = jax.lax.scan(one_step, start, keys)
        observation, action, reward, terminated, alive = seen
        return Trajectories(observation, action, reward, terminated, alive, last_observation)

    def record(self, behaviour: Act, key: PRNGKeyArray) -> Recording:
        """One episode with all its states, to the horizon."""
        reset_key, step_key = jax.random.split(key)
        state, observation = self.world.reset(self.params, reset_key)

        def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            state, observation, alive = carry
            act_key, world_key = jax.random.split(key)
            action = behaviour(observation[None], act_key)[0]
            next_state, next_observation, reward, terminated = self.world.step(
                self.params, state, action, world_key
            )
            return (next_state, next_observation, alive & ~terminated), (next_state, reward, alive)

        start = (state, observation, jnp.asarray(True))
        keys = jax.random.split(step_key, self.world.horizon)
        states, reward, alive = jax.lax.scan(one_step, start, keys)[1]
        everything = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, states)
        return Recording(everything, reward, alive, self.params)
