"""The whole state of a run: what is trained on, saved and resumed."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from fedkl.federation.settings import FederationSettings
from fedkl.learning import critic as critics
from fedkl.learning import statistics
from fedkl.learning.local_training import Task, across_rounds, first_coefficients
from fedkl.learning.policy import Policy
from fedkl.learning.state import ClientState, CriticState, Model


class State(eqx.Module):
    """Everything a run needs to go on, apart from its config. All leaves are NumPy arrays."""

    round: np.ndarray
    """Rounds finished."""
    env_steps: np.ndarray
    """Training steps taken in all clients' worlds so far."""
    model: Model
    clients: ClientState
    """Every client's state, stacked along the first axis."""


def first_state(task: Task, federation: FederationSettings, key: PRNGKeyArray) -> State:
    """The state before round 0: a fresh model, the same for every client."""
    model, client = jax.device_get(_fresh(task, *_shared(federation), key))
    n = federation.clients
    return State(
        round=np.asarray(0, np.int64),
        env_steps=np.asarray(0, np.int64),
        model=eqx.tree_at(
            lambda m: (m.observations, m.rewards),
            model,
            tuple(jax.tree.map(np.float64, m) for m in (model.observations, model.rewards)),
            is_leaf=lambda x: x is None,
        ),
        clients=jax.tree.map(lambda x: np.repeat(x[None], n, axis=0), client),
    )


def broadcast(model: Model) -> Model:
    """The model as it is sent: the server keeps its moments in float64, clients take float32."""
    return jax.tree.map(lambda x: np.asarray(x, np.float32), model)


def with_rows(clients: ClientState, chosen: list[int], rows: ClientState) -> ClientState:
    """All clients' states, with new ones for some (the old arrays stay as they are)."""

    def replaced(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        result = old.copy()
        result[chosen] = new
        return result

    return jax.tree.map(replaced, clients, rows)


def _shared(federation: FederationSettings) -> tuple[str, str, str]:
    return (federation.critic, federation.observation_statistics, federation.reward_statistics)


@partial(jax.jit, static_argnames=("critic_at", "observations_at", "rewards_at"))
def _fresh(
    task: Task, critic_at: str, observations_at: str, rewards_at: str, key: PRNGKeyArray
) -> tuple[Model, ClientState]:
    policy_key, critic_key = jax.random.split(key)
    critic = critics.new_critic(task.world, task.critic, critic_key)
    observations = statistics.empty(task.world.observation_size)
    rewards = statistics.empty()
    coefficients = first_coefficients(task)

    def where(place: str, wanted: str, thing: PyTree) -> PyTree:
        return thing if place == wanted else None

    model = Model(
        policy=Policy(task.world, task.learner, policy_key),
        critic=where(critic_at, "federated", critic),
        observations=where(observations_at, "federated", observations),
        rewards=where(rewards_at, "federated", rewards),
        coefficients={
            name: coefficients[name]
            for name, rule in across_rounds(task).items()
            if rule == "averaged"
        },
    )
    client = ClientState(
        coefficients=coefficients,
        step_scale=jnp.ones(()),
        iterations=jnp.zeros((), jnp.int32),
        critic=where(
            critic_at,
            "local",
            CriticState(critic, critics.optimiser(task.critic).init(critic)),
        ),
        observations=where(observations_at, "local", observations),
        rewards=where(rewards_at, "local", rewards),
    )
    return model, client
