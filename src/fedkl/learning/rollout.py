"""Running a policy in a world: whole episodes, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from fedkl.worlds.base import AnyWorld, World

Act = Callable[[Float[Array, "n o"], PRNGKeyArray], Array]


class Trajectories(NamedTuple):
    """n episodes of at most h steps. Entries after an episode's end have `mask` false, and are
    finite whatever the world answers there."""

    observation: Float[Array, "h n o"]
    action: Array
    reward: Float[Array, "h n"]
    terminated: Bool[Array, "h n"]
    mask: Bool[Array, "h n"]
    last_observation: Float[Array, "n o"]

    def returns(self) -> Float[Array, " n"]:
        """The undiscounted sum of each episode's rewards."""
        return jnp.sum(jnp.where(self.mask, self.reward, 0.0), axis=0)


class Recording(NamedTuple):
    """One episode to look at: its states from the first to the last, and the rewards between."""

    moments: PyTree
    """Every leaf with the h + 1 states along its first axis."""
    reward: Float[np.ndarray, " h"]
    params: PyTree
    """Of the world it happened in."""


def episodes_for(world: AnyWorld, steps: int) -> int:
    """How many whole episodes fill `steps` steps (at full length)."""
    return -(-steps // world.horizon)


def rollout(
    world: World, params: PyTree, act: Act, episodes: int, key: PRNGKeyArray
) -> Trajectories:
    """Runs `episodes` episodes of one client's world at once.

    Args:
        world: the world.
        params: that client's row of the world's params.
        act: maps a batch of observations and a key to a batch of actions.
        episodes: how many.
        key: for everything random in it.
    """
    reset_key, step_key = jax.random.split(key)
    state, observation = jax.vmap(world.reset, in_axes=(None, 0))(
        params, jax.random.split(reset_key, episodes)
    )

    def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        state, observation, alive = carry
        act_key, world_key = jax.random.split(key)
        # What is left out by a weight of 0 must be finite: 0 times NaN is NaN.
        observation = jnp.where(alive[:, None], observation, 0.0)
        action = act(observation, act_key)
        next_state, next_observation, reward, terminated = jax.vmap(
            world.step, in_axes=(None, 0, 0, 0)
        )(params, state, action, jax.random.split(world_key, episodes))
        reward = jnp.where(alive, reward, 0.0)
        seen = (observation, action, reward, terminated & alive, alive)
        return (next_state, next_observation, alive & ~terminated), seen

    start = (state, observation, jnp.ones(episodes, bool))
    keys = jax.random.split(step_key, world.horizon)
    (_, last_observation, _), seen = jax.lax.scan(one_step, start, keys)
    observation, action, reward, terminated, alive = seen
    return Trajectories(observation, action, reward, terminated, alive, last_observation)


def record(
    world: World, params: PyTree, act: Act, key: PRNGKeyArray
) -> tuple[PyTree, Float[Array, " h"], Bool[Array, " h"]]:
    """One episode with all its states.

    Returns:
        The states, the first one included; the rewards; and which steps were before its end.
    """
    reset_key, step_key = jax.random.split(key)
    state, observation = world.reset(params, reset_key)

    def one_step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        state, observation, alive = carry
        act_key, world_key = jax.random.split(key)
        action = act(observation[None], act_key)[0]
        next_state, next_observation, reward, terminated = world.step(
            params, state, action, world_key
        )
        return (next_state, next_observation, alive & ~terminated), (next_state, reward, alive)

    start = (state, observation, jnp.asarray(True))
    keys = jax.random.split(step_key, world.horizon)
    states, reward, alive = jax.lax.scan(one_step, start, keys)[1]
    everything = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, states)
    return everything, reward, alive
