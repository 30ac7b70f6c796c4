"""What the tests of local training share: one compiled `local_round`, and where it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fedkl.algorithms import FedKL
from fedkl.learning import critic as critics
from fedkl.learning import statistics
from fedkl.learning.local_training import Task, across_rounds, first_coefficients, local_round
from fedkl.learning.policy import Policy
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.learning.state import ClientState, CriticState, Model
from fedkl.worlds import PointTarget

FEDERATED = {"critic": "federated", "observations": "federated", "rewards": "federated"}


@pytest.fixture(autouse=True, scope="module")
def _always_quick(quick_compilation: None) -> None:
    """All tests here compile small functions."""


@pytest.fixture(scope="session")
def train() -> Callable[..., Any]:
    """`local_round`, compiled once for all tests that share a task's static settings."""
    return jax.jit(local_round)


@pytest.fixture(scope="session")
def start() -> Callable[..., tuple[Model, ClientState]]:
    """Makes a fresh model and client; parts are federated, local or (statistics) none.

    Their leaves are NumPy arrays, as those of a saved state are.
    """

    def make(task: Task, **places: str) -> tuple[Model, ClientState]:
        at = FEDERATED | places
        policy_key, critic_key = jax.random.split(jax.random.key(0))
        critic = critics.new_critic(task.world, task.critic, critic_key)
        things = {
            "critic": (critic, CriticState(critic, critics.optimiser(task.critic).init(critic))),
            "observations": (statistics.empty(task.world.observation_size),) * 2,
            "rewards": (statistics.empty(),) * 2,
        }
        coefficients = first_coefficients(task)
        rules = across_rounds(task)
        model = Model(
            policy=Policy(task.world, task.learner, policy_key),
            **{n: shared if at[n] == "federated" else None for n, (shared, _) in things.items()},
            coefficients={n: c for n, c in coefficients.items() if rules[n] == "averaged"},
        )
        client = ClientState(
            coefficients=coefficients,
            step_scale=jnp.ones(()),
            iterations=jnp.zeros((), jnp.int32),
            **{n: own if at[n] == "local" else None for n, (_, own) in things.items()},
        )
        return jax.device_get((model, client))

    return make


@pytest.fixture(scope="session")
def point() -> Callable[..., Task]:
    """Makes FedKL tasks in probe-point that differ in numbers only, so that one compile serves."""

    def make(d_global: float = 0.6, c1: float = 0.01, **numbers: Any) -> Task:
        learner = {
            "iterations": 3,
            "steps": 64,
            "epochs": 2,
            "minibatch": 32,
            "hidden": (4,),
            "learning_rate": 0.05,
            "d_local": 0.05,
            "guard_multiple": 3.0,
            "c2": 1.0,
            "c2_bounds": (1e-3, 20.0),
        }
        return Task(
            PointTarget(),
            FedKL(d_global=d_global, c1=c1, c1_bounds=(1e-4, 20.0)),
            LearnerSettings(**(learner | numbers)),
            CriticSettings(hidden=(4,), epochs=2, minibatch=32),
        )

    return make
