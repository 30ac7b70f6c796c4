"""The returns of the global policy in one client's world."""

from __future__ import annotations

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from fedkl.learning.local_training import Task, behaviour
from fedkl.learning.rollout import rollout
from fedkl.learning.state import ClientState, Model


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
    seen = model.observations if client.observations is None else client.observations
    act = behaviour(task, model.policy, seen, client.iterations, deterministic)
    return rollout(task.world, params, act, episodes, key).returns()
