"""The global policy in one client's world: its returns, and an episode to look at."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from fedkl.learning.local_training import Task, base_of, behaviour
from fedkl.learning.rollout import record, rollout
from fedkl.learning.state import ClientState, Model
from fedkl.worlds.base import World


def episode_returns(
    task: Task,
    model: Model,
    client: ClientState,
    params: PyTree,
    key: PRNGKeyArray,
    episodes: int,
    deterministic: bool,
) -> Float[Array, " e"]:
    """Undiscounted, unscaled returns of `episodes` episodes; reads state and changes none.

    A client that keeps its own observation statistics is evaluated with them.
    """
    assert isinstance(task.world, World)
    seen = base_of(model, client).observations
    act = behaviour(task, model.policy, seen, client.iterations, deterministic)
    return rollout(task.world, params, act, episodes, key).returns()


def recorded_episode(
    task: Task,
    model: Model,
    client: ClientState,
    params: PyTree,
    key: PRNGKeyArray,
    deterministic: bool,
) -> tuple[PyTree, Float[Array, " h"], Bool[Array, " h"]]:
    """One episode of the global policy with all its states (see `rollout.record`)."""
    assert isinstance(task.world, World)
    seen = base_of(model, client).observations
    act = behaviour(task, model.policy, seen, client.iterations, deterministic)
    return record(task.world, params, act, key)
