"""Local rounds and plain averages in worlds whose answers are known."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import ALGORITHMS, FMARL, FedAvg, FedKL, FedProx
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Task
from fedkl.learning.critic import values
from fedkl.learning.settings import CriticSettings
from fedkl.server.aggregation import AggregationChain as Aggregation
from fedkl.worlds import Bandit, Chain, PointTarget
from fedkl.worlds.base import Transition

KEY = jax.random.key(7)
NO_STATISTICS = {"observations": "none", "rewards": "none"}


def row(tree, i=0):
    return jax.tree.map(lambda x: x[i], tree)


def federate(train, task, model, client, params, rounds):
    """Full participation; every client keeps its own coefficients and step scale."""
    clients = [client] * len(jax.tree.leaves(params)[0])
    for t in range(rounds):
        updates = {}
        for i, mine in enumerate(clients):
            key = jax.random.fold_in(jax.random.fold_in(KEY, t), i)
            update, clients[i], _ = jax.device_get(train(task, model, mine, row(params, i), key))
            updates[i] = update
        messages = [update.message for update in updates.values()]
        shared = task.algorithm.gather(model.shared, messages, len(clients))
        averaged = Aggregation()({}, t, model, updates, KEY).model
        model = dataclasses.replace(averaged, shared=shared)
    return model


BANDIT_LEARNER = PolicyOptimisation(
    iterations=4,
    steps=128,
    epochs=4,
    minibatch=32,
    hidden=(4,),
    learning_rate=0.3,
    d_local=0.1,
    c2=1.0,
    c2_bounds=(1e-3, 20.0),
)
BANDIT_CRITIC = CriticSettings(hidden=(), epochs=2, minibatch=32, learning_rate=0.05)


def bandit(algorithm):
    return Task(Bandit(), algorithm, BANDIT_LEARNER, BANDIT_CRITIC)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_alike_clients_find_the_best_arm(train, start, name):
    task = bandit(ALGORITHMS[name]())
    # Anchors need statistics, in which the only observation, 1, becomes 0.
    needs = name == "fedkl-anchored"
    model, client = start(task, **NO_STATISTICS | ({"observations": "federated"} if needs else {}))
    model = federate(train, task, model, client, Bandit().clients(2, KEY), rounds=5)
    seen = jnp.zeros(1) if needs else jnp.ones(1)
    chances = jax.nn.softmax(model.policy.network(seen))
    assert float(chances[2]) > 0.9
    # The critic's value is the policy's own mean reward by then.
    expected = float(chances @ jnp.array([0.0, 0.5, 1.0]))
    assert float(values(model.critic, seen)) == pytest.approx(expected, abs=0.1)


@pytest.fixture(scope="module")
def bandit_round(train, start):
    """One local round of an algorithm: the update and its metrics."""

    def run(algorithm):
        task = bandit(algorithm)
        model, client = start(task, **NO_STATISTICS)
        update, _, metrics = train(task, model, client, row(Bandit().clients(1, KEY)), KEY)
        gaps = jax.tree.map(
            lambda a, b: float(jnp.sum((a - b) ** 2)), update.model.policy, model.policy
        )
        return update.model.policy, metrics, sum(jax.tree.leaves(gaps))

    return run


@pytest.mark.parametrize(
    "algorithm",
    [FedProx(mu=0.0), FMARL(decay=1.0), FedKL(c1=1e-30, c1_bounds=(1e-30, 1e-29))],
    ids=lambda algorithm: algorithm.name,
)
def test_an_algorithm_that_adds_nothing_is_fedavg(bandit_round, algorithm):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4),
        bandit_round(algorithm)[0],
        bandit_round(FedAvg())[0],
    )


def test_fedprox_stays_nearer_in_parameters(bandit_round):
    assert bandit_round(FedProx(mu=1.0))[2] < 0.5 * bandit_round(FedProx(mu=0.0))[2]


def test_fedkl_stays_nearer_in_distribution(bandit_round):
    loose, tight = (
        bandit_round(FedKL(c1=c1, c1_bounds=(c1, c1)))[1]["distance_global"][-1]
        for c1 in (1e-4, 1.0)
    )
    assert float(tight) < 0.8 * float(loose)


def test_fmarl_moves_less_the_later(bandit_round):
    assert bandit_round(FMARL(decay=0.9))[2] < 0.8 * bandit_round(FMARL(decay=1.0))[2]


def test_the_mean_goes_to_the_centre_of_the_targets(train, start, point):
    task = point(learning_rate=0.05, d_local=0.02)
    model, client = start(task)
    params = PointTarget(centre=0.5, spread=1.0).clients(3, KEY)
    model = federate(train, task, model, client, params, rounds=25)
    seen = (1 - model.observations.mean) / 1e-4  # the only observation, standardised
    mean = float(model.policy.network(jnp.asarray(np.clip(seen, -5, 5), jnp.float32))[0])
    assert mean == pytest.approx(0.5, abs=0.15)
    # Whoever misses by a deviation of up to 1 does better with less of it.
    assert float(model.policy.log_std[0]) < -0.2


class ShortChain(Chain):
    """The walk, cut off after ten steps if it has not ended by then."""

    name: ClassVar[str] = "short-chain"
    horizon: ClassVar[int] = 10


def learnt_values(train, start, **settings):
    """What the critic makes of the first four positions under a frozen uniform policy."""
    critic = CriticSettings(
        hidden=(), learning_rate=0.03, epochs=4, minibatch=500, targets=settings.pop("targets")
    )
    learner = PolicyOptimisation(
        iterations=40,
        steps=2000,
        epochs=1,
        minibatch=2000,
        hidden=(),
        output_scale=0.0,
        learning_rate=1e-30,
        discount=0.9,
        **settings,
    )
    task = Task(ShortChain(), FedAvg(), learner, critic)
    model, client = start(task, **NO_STATISTICS)
    assert not np.any(model.policy.network.weights[0])
    update, _, _ = train(task, model, client, row(Chain().clients(1, KEY)), KEY)
    np.testing.assert_allclose(update.model.policy.network.weights[0], 0, atol=1e-20)
    return np.asarray(values(update.model.critic, jnp.eye(5)))[:4]


def values_up_to_the_time_limit(discount=0.9, horizon=10):
    """V(s) of the uniform policy when nothing follows the time limit, averaged over the times at
    which s is visited."""
    after = np.zeros((horizon + 1, 5))
    for t in reversed(range(horizon)):
        for s in range(4):
            left, right = max(s - 1, 0), s + 1
            reward = -0.1 + 0.5 * (right == 4)
            after[t, s] = reward + discount * 0.5 * (after[t + 1, left] + after[t + 1, right])
    visits = np.zeros((horizon, 5))
    visits[0, 0] = 1
    for t in range(1, horizon):
        for s in range(4):
            visits[t, max(s - 1, 0)] += 0.5 * visits[t - 1, s]
            visits[t, s + 1] += 0.5 * visits[t - 1, s]
    return (visits * after[:horizon]).sum(axis=0)[:4] / visits.sum(axis=0)[:4]


def test_the_critic_learns_the_values_of_a_walk_that_is_cut_off(train, start):
    """The true end is worth nothing, and a time limit as much as the critic says."""
    learnt = learnt_values(train, start, targets="gae", gae_lambda=0.95)
    expected = Chain.uniform_values(row(Chain().clients(1, KEY)), 0.9)[:4]
    np.testing.assert_allclose(learnt, expected, atol=0.05)


def test_without_bootstrapping_a_time_limit_is_worth_nothing(train, start):
    learnt = learnt_values(train, start, targets="returns", bootstrap_truncation=False)
    np.testing.assert_allclose(learnt, values_up_to_the_time_limit(), atol=0.05)


class Clock(PointTarget):
    """Whatever is done brings 1, four times: after step t the return to come is 4 - t."""

    name: ClassVar[str] = "clock"
    horizon: ClassVar[int] = 4

    def step(self, params, state, action, key):
        return Transition(state, jnp.ones(1), jnp.ones(()), jnp.asarray(False))


@pytest.mark.parametrize("targets", ["gae", "returns"])
def test_a_critic_that_sees_the_time_knows_how_much_is_to_come(train, start, targets):
    """The share of time left is 1, 1/2, 0 and -1/2, and 2 + 2 times that is the value."""
    critic = CriticSettings(
        hidden=(), learning_rate=0.05, epochs=4, minibatch=64, targets=targets, sees_time=True
    )
    learner = PolicyOptimisation(
        iterations=60,
        steps=256,
        epochs=1,
        minibatch=256,
        hidden=(),
        learning_rate=1e-30,
        discount=1.0,
        bootstrap_truncation=False,
    )
    task = Task(Clock(), FedAvg(), learner, critic)
    params = row(PointTarget().clients(1, KEY))
    update = train(task, *start(task, **NO_STATISTICS), params, KEY).update
    seen = jnp.array([[1.0, left] for left in (1.0, 0.5, 0.0, -0.5)])
    np.testing.assert_allclose(values(update.model.critic, seen), [4, 3, 2, 1], atol=0.05)
