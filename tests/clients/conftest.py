"""What the tests of clients share: one compiled `local_round`, and where it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest

from fedkl.algorithms import FedKL
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import ClientState, Metrics, Model, Start, Task, Update, first_states
from fedkl.clients.round import local_round
from fedkl.clients.sources import Traced
from fedkl.learning.settings import CriticSettings, Sharing
from fedkl.worlds import PointTarget


class Outcome(NamedTuple):
    """What comes of a round: what is sent, what is kept, what is reported."""

    update: Update
    after: ClientState
    metrics: Metrics


@pytest.fixture(autouse=True, scope="module")
def _always_quick(quick_compilation: None) -> None:
    """All tests here compile small functions."""


@pytest.fixture(scope="session")
def train() -> Callable[..., Outcome]:
    """`local_round`, compiled once for all tests that share a task's static settings."""

    def once(task: Task, model: Model, client: ClientState, params: Any, key: Any) -> Outcome:
        source = Traced(task.world, params)
        trained, after = local_round(task, Start(model, client, key), source)
        return Outcome(trained.update, after, trained.metrics)

    return jax.jit(once)


@pytest.fixture(scope="session")
def start() -> Callable[..., tuple[Model, ClientState]]:
    """Makes a fresh model and client; parts are federated, local or (statistics) none."""

    def make(task: Task, **places: str) -> tuple[Model, ClientState]:
        return first_states(task, Sharing(**places), jax.random.key(0))

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
            PolicyOptimisation(**(learner | numbers)),
            CriticSettings(hidden=(4,), epochs=2, minibatch=32),
        )

    return make
