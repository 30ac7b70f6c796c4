"""Evaluation against known returns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedAvg
from fedkl.learning.evaluation import episode_returns
from fedkl.learning.local_training import Task
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.worlds import PointTarget
from fedkl.worlds.probes import PointParams

KEY = jax.random.key(0)
TARGET = PointParams(jnp.array(2.0))
evaluate = jax.jit(episode_returns, static_argnums=(5, 6))


@pytest.fixture(scope="module")
def known(start):
    """A policy whose mean is 3 times the standardised observation, with deviation 1/2."""
    learner = LearnerSettings(
        hidden=(), initial_log_std=float(np.log(0.5)), uniform_exploration=0.5
    )
    task = Task(PointTarget(), FedAvg(), learner, CriticSettings(hidden=()))

    def make(**places):
        model, client = start(task, **places)
        network = model.policy.network
        three = eqx.tree_at(lambda n: n.weights, network, (jnp.array([[3.0]]),))
        model = eqx.tree_at(lambda m: m.policy.network, model, three)
        return task, model, eqx.tree_at(lambda c: c.iterations, client, jnp.array(1))

    return make


def test_a_deterministic_policy_has_its_modes_return(known):
    # The observation is 1: the mode is 3, the target 2.
    returns = evaluate(*known(), TARGET, KEY, 2000, True)
    np.testing.assert_allclose(returns, np.full(2000, -1.0))


def test_a_stochastic_policy_pays_for_its_deviation(known):
    returns = evaluate(*known(), TARGET, KEY, 2000, False)
    assert float(returns.mean()) == pytest.approx(-1 - 0.25, abs=0.1)
    assert len(set(returns.tolist())) > 1900


def test_a_client_is_evaluated_with_the_statistics_it_keeps(known):
    task, model, client = known(observations="local")
    # Mean 1/2 and deviation 1/4 make 2 of the observation 1: the mode is 6.
    own = Moments(jnp.array(4.0), jnp.array([0.5]), jnp.array([0.25]))
    client = eqx.tree_at(lambda c: c.observations, client, own)
    returns = evaluate(task, model, client, TARGET, KEY, 2000, True)
    np.testing.assert_allclose(returns, np.full(2000, -16.0))


def test_a_client_that_never_trained_explores_in_evaluation_too(known):
    """As the authors' code does; a uniform action in [0, 1] costs (2 - a)^2, between 1 and 4."""
    task, model, client = known()
    client = eqx.tree_at(lambda c: c.iterations, client, jnp.array(0))
    returns = evaluate(task, model, client, TARGET, KEY, 2000, False)
    # E (2 - a)^2 = 7/3 for uniform a.
    assert float(returns.mean()) == pytest.approx(-(1.25 + 7 / 3) / 2, abs=0.1)
    np.testing.assert_allclose(evaluate(task, model, client, TARGET, KEY, 2000, True), -1.0)
