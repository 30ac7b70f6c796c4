"""A mixture of policies beside the average of their parameters: returns and distances by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedAvg
from fedkl.clients.mixture import (
    EvaluateAveraging,
    apart_from_mixture,
    draw_from_mixture,
    with_members,
)
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Start, Task
from fedkl.clients.sources import Traced
from fedkl.learning.settings import CriticSettings
from fedkl.worlds import PointTarget
from fedkl.worlds.probes import PointParams

KEY = jax.random.key(0)


def task_with(deviation):
    learner = PolicyOptimisation(hidden=(), initial_log_std=float(np.log(deviation)))
    return Task(PointTarget(), FedAvg(), learner, CriticSettings(hidden=()))


def aiming(policy, mean):
    """A policy whose mean is a number: the world shows 1 in every state."""
    return eqx.tree_at(lambda p: p.network.weights, policy, (jnp.array([[mean]]),))


@pytest.fixture(scope="module")
def evaluate(start):
    def run(deviation, before, members, weights, target, episodes=4000):
        task = task_with(deviation)
        model, client = start(task)
        average = sum(w * m for w, m in zip(weights, members, strict=True)) / sum(weights)
        policies = [aiming(model.policy, m) for m in members]
        model = eqx.tree_at(lambda m: m.policy, model, aiming(model.policy, average))
        sent = with_members(model, aiming(model.policy, before), policies, weights)
        source = Traced(task.world, PointParams(jnp.array(target)))
        work = jax.jit(EvaluateAveraging(episodes))
        found, after = work(task, Start(sent, client, KEY), source)
        assert after is None
        return found

    return run


def test_a_mixture_has_the_mean_of_its_members_returns_and_not_the_averages(evaluate):
    # Means 3 and 1 in shares of 1/4 and 3/4, target 3: returns 0 and -4. The average has mean 1.5
    # and a return of -2.25.
    found = evaluate(1e-3, 2.0, [3.0, 1.0], [500.0, 1500.0], 3.0)
    np.testing.assert_allclose(found.members, [0.0, -4.0], atol=0.01)
    np.testing.assert_allclose(found.mixture, -3.0, atol=0.1)
    # They have next to no actions in common.
    np.testing.assert_allclose(found.tv, 1.0, atol=1e-5)


def test_distances_are_from_the_policy_before(evaluate):
    # sqrt(KL / 2) of two normals with deviation 1/2 is the distance of their means, over 2 x 1/2.
    found = evaluate(0.5, 2.0, [3.0, 1.5], [1.0, 1.0], 0.0, episodes=5)
    np.testing.assert_allclose(found.distance_mean, [1.0, 0.5], rtol=1e-5)
    np.testing.assert_allclose(found.distance_max, [1.0, 0.5], rtol=1e-5)


def test_members_that_are_alike_are_their_average(evaluate):
    found = evaluate(0.5, 2.0, [3.0, 3.0], [1.0, 2.0], 0.0, episodes=50)
    np.testing.assert_allclose([found.kl, found.tv], [0.0, 0.0], atol=1e-5)


def test_divergences_from_a_mixture_are_those_that_integration_gives(start):
    members, weights, average = [-1.0, 2.0], jnp.array([0.75, 0.25]), 0.5
    task = task_with(1.0)
    policy = start(task)[0].policy
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *(aiming(policy, m) for m in members))
    states = jnp.ones((200_000, 1))
    actions = draw_from_mixture(stacked, weights, states, KEY)
    np.testing.assert_allclose(jnp.mean(actions), -0.25, atol=0.01)
    kl, tv = apart_from_mixture(
        aiming(policy, average), stacked, weights, states, actions, jnp.ones(len(states))
    )
    x = np.linspace(-12, 12, 200_001)

    def normal(mean):
        return np.exp(-0.5 * (x - mean) ** 2) / np.sqrt(2 * np.pi)

    mixture, one = 0.75 * normal(-1.0) + 0.25 * normal(2.0), normal(average)
    step = x[1] - x[0]
    np.testing.assert_allclose(kl, np.sum(mixture * np.log(mixture / one)) * step, rtol=0.02)
    np.testing.assert_allclose(tv, 0.5 * np.sum(np.abs(mixture - one)) * step, rtol=0.02)


def test_states_that_do_not_count_are_left_out(start):
    policy = start(task_with(1.0))[0].policy
    stacked = jax.tree.map(lambda x: x[None], aiming(policy, 0.0))
    states, actions = jnp.ones((2, 1)), jnp.array([[0.0], [50.0]])
    found = apart_from_mixture(
        aiming(policy, 1.0), stacked, jnp.ones(1), states, actions, jnp.array([1.0, 0.0])
    )
    # log N(0; 0, 1) - log N(0; 1, 1) = 1/2.
    np.testing.assert_allclose(found, [0.5, 1 - np.exp(-0.5)], rtol=1e-5)
