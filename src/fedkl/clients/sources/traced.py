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
from fedkl.learning.trajectories import Trajectories, columns_for, first
from fedkl.worlds.base import World

Act = Callable[[Float[Array, "n o"], PRNGKeyArray], Array]


class Traced(eqx.Module):
    """One client's world: pure functions and that client's row of params."""

    world: World
    params: PyTree

    def collect(self, behaviour: Act, episodes: int, key: PRNGKeyArray) -> Trajectories:
        """Runs `episodes` whole episodes at once.

        Args:
            behaviour: maps a batch of observations and a key to a batch of actions.
            episodes: how many.
            key: for everything random in it.
        """
        reset_key, step_key = jax.random.split(key)
        params, axis = self._params_of(episodes, key)
        state, observation = jax.vmap(self.world.reset, in_axes=(axis, 0))(
            params, jax.random.split(reset_key, episodes)
        )

        def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            state, observation, alive = carry
            act_key, world_key = jax.random.split(key)
            # What is left out by a weight of 0 must be finite: 0 times NaN is NaN.
            observation = jnp.where(alive[:, None], observation, 0.0)
            action = behaviour(observation, act_key)
            next_state, next_observation, reward, terminated = jax.vmap(
                self.world.step, in_axes=(axis, 0, 0, 0)
            )(params, state, action, jax.random.split(world_key, episodes))
            reward = jnp.where(alive, reward, 0.0)
            seen = (observation, action, reward, terminated & alive, alive)
            return (next_state, next_observation, alive & ~terminated), seen

        start = (state, observation, jnp.ones(episodes, bool))
        keys = jax.random.split(step_key, self.world.horizon)
        (_, last_observation, _), seen = jax.lax.scan(one_step, start, keys)
        observation, action, reward, terminated, alive = seen
        return Trajectories(observation, action, reward, terminated, alive, last_observation)

    def fill(self, behaviour: Act, steps: int, key: PRNGKeyArray) -> Trajectories:
        """Runs exactly `steps` steps, in columns as long as the time limit.

        Args:
            behaviour: maps a batch of observations and a key to a batch of actions.
            steps: how many.
            key: for everything random in it.
        """
        rows, columns = self.world.horizon, columns_for(self.world, steps)
        data = self._columns(behaviour, columns, key)
        counted = first(steps, rows, columns)
        # The last column may be cut before its last row: what is seen there comes after it.
        if left := steps % rows:
            after = data.last_observation.at[-1].set(data.observation[left, -1])
            data = data._replace(last_observation=after)
        return data._replace(mask=counted, terminated=data.terminated & counted)

    def _columns(self, behaviour: Act, columns: int, key: PRNGKeyArray) -> Trajectories:
        """Columns without gaps: after an end the next episode begins."""
        if not self.world.terminates:
            return self.collect(behaviour, columns, key)
        params, axis = self._params_of(columns, key)
        reset = jax.vmap(self.world.reset, in_axes=(axis, 0))
        step = jax.vmap(self.world.step, in_axes=(axis, 0, 0, 0))
        reset_key, step_key = jax.random.split(key)

        def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            state, observation = carry
            act_key, world_key, again_key = jax.random.split(key, 3)
            action = behaviour(observation, act_key)
            moved = step(params, state, action, jax.random.split(world_key, columns))
            new = reset(params, jax.random.split(again_key, columns))
            over = moved.terminated
            goes_on = jax.tree.map(
                lambda a, b: jnp.where(over.reshape(-1, *[1] * (a.ndim - 1)), a, b),
                new,
                (moved.state, moved.observation),
            )
            return goes_on, (observation, action, moved.reward, over)

        start = reset(params, jax.random.split(reset_key, columns))
        keys = jax.random.split(step_key, self.world.horizon)
        (_, last), (observation, action, reward, over) = jax.lax.scan(one_step, start, keys)
        return Trajectories(observation, action, reward, over, jnp.ones_like(over), last)

    def _params_of(self, columns: int, key: PRNGKeyArray) -> tuple[PyTree, int | None]:
        """The params of each column's world, and the axis along which columns have their own."""
        return self.params, None

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
