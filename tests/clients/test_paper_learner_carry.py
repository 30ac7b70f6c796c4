"""What a round begins with, and what one iteration hands to the next."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedAvg, FedKLAnchored, FedProx
from fedkl.clients.paper_learner import PolicyOptimisation, iteration_stats
from fedkl.clients.records import Start, Task
from fedkl.clients.round import global_behaviour, iteration_keys, policy_of
from fedkl.learning.settings import ALL, PERSONAL, CriticSettings
from fedkl.learning.statistics import Moments
from fedkl.worlds import Chain, PointTarget

KEY = jax.random.key(5)


def a_task(algorithm=None, world=None, **critic):
    learner = PolicyOptimisation(hidden=(3,), iterations=2, steps=8)
    return Task(
        world or PointTarget(),
        algorithm or FedAvg(),
        learner,
        CriticSettings(hidden=(2,), **critic),
    )


def shifted(client, by):
    """A client whose personal part is another."""
    moved = jax.tree.map(lambda x: x + np.float32(by), client.personal)
    return eqx.tree_at(lambda c: c.personal, client, moved, is_leaf=lambda x: x is None)


def test_every_iteration_has_keys_of_its_own_and_each_for_another_use():
    keys = [jax.random.key_data(key) for i in range(3) for key in iteration_keys(KEY, i)]
    assert len({tuple(key.tolist()) for key in keys}) == 9


@pytest.mark.parametrize("personal", PERSONAL)
def test_a_client_acts_and_begins_with_its_own_part_of_the_policy(start, personal):
    task = a_task()
    model, client = start(task, personal=personal)
    client = shifted(client, 2.0)
    policy = policy_of(model, client)
    moved = float(policy.network.biases[-1][0])
    assert moved == (0 if personal == "none" else 2)
    if personal != ALL:  # then the server has no part of it
        np.testing.assert_array_equal(policy.network.weights[0], model.policy.network.weights[0])
    carry = task.learner.begin(task, Start(model, client, KEY))
    for acting in (
        carry.policy,
        task.learner.behaviour(task, Start(model, client, KEY), carry).policy,
        global_behaviour(task, model, client).policy,
    ):
        jax.tree.map(np.testing.assert_array_equal, acting, policy)


def test_the_personal_part_is_in_the_optimisers_memory_too(start):
    learner = PolicyOptimisation(hidden=(3,), optimiser="adam", iterations=2, steps=8)
    task = Task(PointTarget(), FedAvg(), learner, CriticSettings(hidden=(2,)))
    memory = task.learner.begin(
        task, Start(*start(task, personal="last-layer"), KEY)
    ).policy_optimiser
    whole = task.learner.begin(task, Start(*start(task), KEY)).policy_optimiser
    assert jax.tree.structure(memory) == jax.tree.structure(whole)


def test_nothing_is_collected_before_the_first_iteration(start):
    task = a_task(FedKLAnchored(), world=Chain())
    carry = task.learner.begin(task, Start(*start(task), KEY))
    assert float(carry.step_size_sum) == 0
    assert carry.observations.products.tolist() == [0] * 10
    assert not any(x.any() for x in jax.tree.leaves((carry.observations, carry.rewards)))
    assert carry.sample is None
    assert carry.replay is None


def test_a_sample_is_carried_for_who_asks(start):
    task = a_task(FedKLAnchored(anchors="shared"), world=Chain())
    assert task.learner.begin(task, Start(*start(task), KEY)).sample.shape == (24, 5)


@pytest.mark.parametrize(("sees_time", "inputs"), [(False, 1), (True, 2)])
def test_a_replayed_batch_is_as_wide_as_what_the_critic_sees(start, sees_time, inputs):
    task = a_task(sees_time=sees_time, replay_previous=True)
    replay = task.learner.begin(task, Start(*start(task), KEY)).replay
    assert replay.observation.shape == (8, inputs)
    assert not replay.weight.any()


def test_what_a_client_sees_with_is_what_was_sent_and_what_it_has_seen_since(start):
    """Mean 3 of 4 samples, and mean 0 of 8: 1."""
    task = a_task(FedProx())
    model, client = start(task)
    sent = Moments(np.float32(4), np.array([3.0], np.float32), np.array([4.0], np.float32))
    begun = Start(eqx.tree_at(lambda m: m.observations, model, sent), client, KEY)
    carry = task.learner.begin(task, begun)
    assert float(iteration_stats(task.learner, begun, carry).mean[0]) == 3
    new = Moments(jnp.array(8.0), jnp.zeros(1), jnp.zeros(1))
    merged = iteration_stats(task.learner, begun, carry._replace(observations=new))
    assert (float(merged.count), float(merged.mean[0])) == (12, 1)


def test_statistics_from_the_round_stay_what_was_sent(start):
    task = a_task(FedProx())
    task = eqx.tree_at(
        lambda t: t.learner, task, dataclasses.replace(task.learner, statistics_from="round")
    )
    model, client = start(task)
    sent = Moments(np.float32(4), np.array([3.0], np.float32), np.array([4.0], np.float32))
    begun = Start(eqx.tree_at(lambda m: m.observations, model, sent), client, KEY)
    new = Moments(jnp.array(8.0), jnp.zeros(1), jnp.zeros(1))
    seen = iteration_stats(
        task.learner, begun, task.learner.begin(task, begun)._replace(observations=new)
    )
    assert (float(seen.count), float(seen.mean[0])) == (4, 3)
