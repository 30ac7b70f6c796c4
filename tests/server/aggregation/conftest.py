"""A model so small that every number of it can be set by hand."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.algorithms import FedAvg
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Model, Task, Update, first_states
from fedkl.learning.settings import CriticSettings, Sharing
from fedkl.learning.statistics import Moments
from fedkl.server.state import at_the_server
from fedkl.worlds import PointTarget


def moments(data: np.ndarray) -> Moments:
    """Of a sample with one row for each observation."""
    data = np.asarray(data, np.float64)
    return Moments(np.float64(len(data)), data.mean(0), ((data - data.mean(0)) ** 2).sum(0))


@pytest.fixture(scope="session")
def blank() -> Model:
    """A policy of three numbers, a critic of two, c2, and the moments of one observation."""
    learner = PolicyOptimisation(hidden=(), c2_across_rounds="averaged")
    task = Task(PointTarget(), FedAvg(), learner, CriticSettings(hidden=()))
    return at_the_server(first_states(task, Sharing(rewards="none"), jax.random.key(0))[0])


@pytest.fixture
def filled(blank: Model) -> Callable[..., Model]:
    """Makes a model whose numbers are all the same, and whose moments are those of some data."""

    def make(value: float, data: np.ndarray | None = None) -> Model:
        model = jax.tree.map(lambda x: np.full_like(x, value), blank)
        seen = moments(np.zeros((1, 1)) if data is None else data)
        if data is None:
            seen = jax.tree.map(np.zeros_like, seen)
        return eqx.tree_at(lambda m: m.observations, model, seen)

    return make


@pytest.fixture
def update(filled: Callable[..., Model]) -> Callable[..., Update]:
    """Makes the update of a client whose parameters are all the same number."""

    def make(value: float, weight: float = 1.0, data: np.ndarray | None = None) -> Update:
        sent = jax.tree.map(np.float32, filled(value, data))
        return Update(sent, np.asarray(weight, np.float32), ())

    return make
