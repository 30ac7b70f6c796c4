"""What `local_round` is made of gives, a piece at a time, what `local_round` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.clients import round as pieces
from fedkl.clients.records import Start
from fedkl.clients.round import iteration_keys
from fedkl.clients.sources import Traced

KEY = jax.random.key(5)


@pytest.mark.parametrize("critic", ["federated", "local"])
def test_a_round_taken_piece_by_piece_is_the_same_round(point, start, train, critic):
    """What an engine for shared worlds does: begin, improve and fit_critic by turns, finish."""
    task = point()
    begun = Start(*start(task, critic=critic), KEY)
    params = jax.tree.map(lambda x: x[0], task.world.clients(1, KEY))
    whole = train(task, begun.model, begun.client, params, KEY)

    carry, rows = task.learner.begin(task, begun), []
    for i in range(task.learner.iterations):
        acts = task.learner.behaviour(task, begun, carry)
        data = Traced(task.world, params).collect(acts, 64, iteration_keys(KEY, i)[0])
        cleaned = task.learner.clean(task, data)
        carry, batch, metrics = jax.jit(task.learner.improve)(
            task, begun, carry, data, cleaned, jnp.asarray(i)
        )
        carry = jax.jit(task.learner.fit_critic)(task, begun, carry, batch, jnp.asarray(i))
        rows.append(metrics)
    metrics = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    trained, after = task.learner.finish(task, begun, carry, metrics)
    for one, other in zip(
        jax.tree.leaves(whole),
        jax.tree.leaves((trained.update, after, trained.metrics)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


class ByHand:
    """Episodes of a traced world, for a client that does not know that it is one."""

    def __init__(self, world, params):
        self._traced = Traced(world, params)

    def collect(self, behaviour, episodes, key):
        return self._traced.collect(behaviour, episodes, key)

    def fill(self, behaviour, steps, key):
        return self._traced.fill(behaviour, steps, key)

    def record(self, behaviour, key):
        return self._traced.record(behaviour, key)


class Broken(ByHand):
    """One reading of each batch, and one reward, are far from all others."""

    def fill(self, behaviour, steps, key):
        data = super().fill(behaviour, steps, key)
        return data._replace(
            observation=data.observation.at[0, 5].set(1e6),
            reward=data.reward.at[0, 6].set(-1e6),
        )


@pytest.mark.parametrize("critic", ["federated", "local"])
def test_a_round_on_episodes_from_elsewhere_is_the_same_round(point, start, train, critic):
    """The same episodes, handed to `local_round` from outside of jit, give the same update."""
    task = point()
    model, client = start(task, critic=critic)
    params = jax.tree.map(lambda x: x[0], task.world.clients(1, KEY))
    inside = train(task, model, client, params, KEY)
    begun = Start(model, client, KEY)
    trained, after = pieces.local_round(task, begun, ByHand(task.world, params))
    outside = (trained.update, after, trained.metrics)
    assert jax.tree.structure(tuple(inside)) == jax.tree.structure(outside)
    for one, other in zip(jax.tree.leaves(inside), jax.tree.leaves(outside), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_broken_readings_set_no_scale_and_are_counted(point, start):
    """64 samples in each of three batches. Plainly, a reading would make a deviation of 124,000."""
    task = point()
    model, client = start(task)
    params = jax.tree.map(lambda x: x[0], task.world.clients(1, KEY))
    begun = Start(model, client, KEY)
    trained, _ = pieces.local_round(task, begun, Broken(task.world, params))
    sent = trained.update.model
    for moments in (sent.observations, sent.rewards):
        assert float(moments.count) == 192
        assert float(np.sqrt(np.max(moments.squares) / 192)) < 5
        assert float(np.max(np.abs(moments.mean))) < 5
    assert trained.metrics["outliers"].tolist() == [2, 2, 2]


def test_a_broken_observation_is_learnt_from_as_it_was_seen_and_a_broken_reward_is_not(
    point, start
):
    """The policy acted on the one, clipped; the other is the mean of those that were paid."""
    task = point()
    params = jax.tree.map(lambda x: x[0], task.world.clients(1, KEY))
    begun = Start(*start(task), KEY)
    carry = task.learner.begin(task, begun)
    data = Broken(task.world, params).fill(task.learner.behaviour(task, begun, carry), 64, KEY)
    cleaned = task.learner.clean(task, data)
    others = np.delete(np.asarray(data.reward)[0], 6)
    assert float(cleaned.observation[0, 5, 0]) == 1
    assert float(cleaned.reward[0, 6]) == pytest.approx(others.mean(), rel=1e-5)
    after, batch, metrics = task.learner.improve(task, begun, carry, data, cleaned, jnp.asarray(0))
    assert float(after.observations.mean[0]) == 1
    assert float(batch.observation[5, 0]) == 5  # the clip of what is seen
    assert float(metrics["train_return"]) == pytest.approx(others.mean(), rel=1e-5)
    assert float(metrics["outliers"]) == 2


def test_a_healthy_round_counts_no_broken_readings(point, start):
    task = point()
    params = jax.tree.map(lambda x: x[0], task.world.clients(1, KEY))
    trained, _ = pieces.local_round(task, Start(*start(task), KEY), ByHand(task.world, params))
    assert trained.metrics["outliers"].tolist() == [0, 0, 0]
