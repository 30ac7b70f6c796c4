"""One client's round: purity, what is sent and what is kept, coefficients, compilation."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.algorithms import ALGORITHMS, FedKL
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Start, Task
from fedkl.clients.round import local_round
from fedkl.clients.sources import Traced
from fedkl.learning.settings import CriticSettings
from fedkl.learning.statistics import Moments
from fedkl.worlds import Bandit, PointTarget

KEY = jax.random.key(5)
STEPS = 3 * 64  # of a round of the `point` task
SEEN = Moments(np.array(1000.0), np.array([3.0]), np.array([4000.0]))


def row(tree, i=0):
    return jax.tree.map(lambda x: x[i], tree)


def changed(tree, where, value):
    """The tree with another value in place of `where`, of the same type."""
    new = jax.tree.map(lambda old, new: np.asarray(new, old.dtype), where(tree), value)
    return eqx.tree_at(where, tree, new)


def same_bits(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope="module")
def params():
    return PointTarget(spread=1.0).clients(3, KEY)


@pytest.fixture(scope="module")
def outcome(train, start, point, params):
    task = point()
    return train(task, *start(task), row(params), KEY)


def test_the_same_inputs_give_the_same_bits(train, start, point, params, outcome):
    task = point()
    same_bits(train(task, *start(task), row(params), KEY), outcome)


def test_another_key_gives_another_round(train, start, point, params, outcome):
    task = point()
    other = train(task, *start(task), row(params), jax.random.key(6))
    assert not np.allclose(other[0].model.policy.log_std, outcome[0].model.policy.log_std)


def test_clients_trained_together_do_as_they_would_alone(train, start, point, params):
    task = point()
    model, client = start(task)
    clients = jax.tree.map(lambda x: np.stack([x, x, x]), client)
    clients = changed(clients, lambda c: c.coefficients["c1"], [0.01, 0.1, 1.0])
    keys = jax.random.split(KEY, 3)
    together = jax.jit(jax.vmap(train, in_axes=(None, None, 0, 0, 0)))(
        task, model, clients, params, keys
    )
    for i in range(3):
        alone = train(task, model, row(clients, i), row(params, i), keys[i])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
            row(together, i),
            alone,
        )


def test_a_round_reports_each_iteration_and_its_end(outcome):
    update, client, metrics = outcome
    for name in ("kl_local", "distance_global", "guarded", "train_return", "steps", "outliers"):
        assert metrics[name].shape == (3,)
    same_bits(metrics["coefficients"], client.coefficients)
    assert float(metrics["step_scale"]) == float(client.step_scale)
    assert int(client.iterations) == 3
    assert float(update.weight) == STEPS


# Where things live.


def test_what_is_federated_is_sent_and_not_kept(outcome):
    update, client, _ = outcome
    assert client.critic is client.observations is client.rewards is None
    assert update.model.critic is not None
    assert update.model.coefficients == {}
    assert float(update.model.observations.count) == float(update.model.rewards.count) == STEPS
    np.testing.assert_allclose(update.model.observations.mean, [1.0], rtol=1e-6)


def test_sent_statistics_hold_the_rounds_own_data_only(train, start, point, params):
    task = point()
    model, client = start(task)
    model = changed(model, lambda m: m.observations, SEEN)
    sent = train(task, model, client, row(params), KEY)[0].model.observations
    assert float(sent.count) == STEPS
    np.testing.assert_allclose(sent.mean, [1.0], rtol=1e-6)
    np.testing.assert_allclose(sent.squares, [0.0], atol=1e-6)


def authors(c1=0.25, critic_rate=0.001, **numbers):
    """Static choices opposite to those of `point`, as in the authors' code."""
    learner = PolicyOptimisation(
        iterations=2,
        steps=64,
        epochs=1,
        minibatch=64,
        hidden=(4,),
        learning_rate=0.05,
        optimiser="adam",
        max_gradient_norm=0.5,
        bootstrap_truncation=False,
        standardise_advantages=False,
        c2=0.5,
        c2_bounds=(1e-8, 20.0),
        c2_cap_by_advantage=True,
        c2_across_rounds="reset",
        guard=False,
        uniform_exploration=0.5,
    )
    critic = CriticSettings(
        hidden=(),
        epochs=30,
        minibatch=32,
        targets="returns",
        replay_previous=True,
        learning_rate=critic_rate,
    )
    fedkl = FedKL(
        d_global=1e-6,
        c1=c1,
        c1_bounds=(1e-4, 20.0),
        c1_cap_by_advantage=True,
        c1_across_rounds="averaged",
    )
    return Task(PointTarget(), fedkl, dataclasses.replace(learner, **numbers), critic)


LOCAL = {"critic": "local", "observations": "local", "rewards": "local"}


@pytest.fixture(scope="module")
def local_outcome(train, start, params):
    task = authors()
    model, client = start(task, **LOCAL)
    client = changed(client, lambda c: c.coefficients["c1"], 7.0)
    client = changed(client, lambda c: c.coefficients["c2"], 9.0)
    client = changed(client, lambda c: c.observations, SEEN)
    return client, train(task, model, client, row(params), KEY)


def test_what_is_local_is_kept_and_not_sent(local_outcome):
    before, (update, after, _) = local_outcome
    assert update.model.critic is update.model.observations is update.model.rewards is None
    assert float(after.rewards.count) == 128
    # 1000 samples of mean 3 and 128 of 1.
    assert float(after.observations.count) == 1128
    np.testing.assert_allclose(after.observations.mean, [3128 / 1128], rtol=1e-5)
    assert not np.array_equal(after.critic.critic.weights[0], before.critic.critic.weights[0])


def test_a_local_critics_optimiser_keeps_its_state_from_round_to_round(
    train, start, params, local_outcome
):
    """A batch and the one replayed are 2 * 64 samples: 30 epochs of 4 minibatches."""
    task = authors()
    after = local_outcome[1][1]
    assert int(after.critic.optimiser[0].count) == 2 * 30 * 4
    later = train(task, start(task, **LOCAL)[0], jax.device_get(after), row(params), KEY)[1]
    assert int(later.critic.optimiser[0].count) == 2 * 2 * 30 * 4


def test_the_critic_learns_from_the_previous_batch_as_well(train, start, params):
    """The policy stays at 0, 0.5 from the target, but half of the first batch explores.

    In the first iteration, without statistics yet, the observation is 1, in the second it is
    standardised to 0: the critic keeps what it learnt of 1 only if it sees the first batch again.
    """
    task = authors(critic_rate=0.05, output_scale=0.0, initial_log_std=-3.0, learning_rate=1e-30)
    _, after, metrics = train(task, *start(task, **LOCAL), row(params), KEY)
    first, second = (float(r) for r in metrics["train_return"])
    assert second == pytest.approx(-0.25, abs=0.02)
    assert first < -0.5
    # The deviations that rewards were divided by: over both batches, and over the first alone.
    between = 32 * (first - second) ** 2
    last = np.sqrt(float(after.rewards.squares) / 128)
    alone = np.sqrt((float(after.rewards.squares) - between) / 64)
    critic = after.critic.critic
    value_of_zero = float(critic.biases[0][0])
    value_of_one = value_of_zero + float(critic.weights[0][0, 0])
    assert value_of_zero == pytest.approx(second / last, rel=0.1)
    assert value_of_one == pytest.approx(first / alone, rel=0.1)


def test_the_policys_optimiser_keeps_its_state_from_iteration_to_iteration(train, start, params):
    """A fresh Adam's one step an iteration would be of length 1, in learning rates."""
    task = authors(learning_rate=0.01)
    model, client = start(task, **LOCAL)
    update, _, _ = train(task, model, client, row(params), KEY)
    way = abs(float(update.model.policy.log_std[0] - model.policy.log_std[0])) / 0.01
    assert 0.01 < way < 1.99


# Coefficients.


def test_kept_coefficients_start_from_the_clients_own(train, start, point, params):
    """The reported divergences say, iteration by iteration, what must become of them."""
    task = point(learning_rate=0.1, d_local=0.01, d_global=0.1)
    model, client = start(task)
    client = changed(client, lambda c: c.coefficients["c1"], 0.3)
    client = changed(client, lambda c: c.coefficients["c2"], 0.7)
    _, after, metrics = train(task, model, client, row(params), KEY)
    c1, c2 = 0.3, 0.7
    for kl, distance, guarded in zip(
        metrics["kl_local"], metrics["distance_global"], metrics["guarded"], strict=True
    ):
        if not guarded:
            c2 *= 0.5 if kl < 0.01 / 1.1 else 2 if kl > 0.01 * 1.1 else 1
            c1 *= 0.5 if distance < 0.1 / 1.1 else 2 if distance > 0.1 * 1.1 else 1
    assert c1 != 0.3
    assert c2 != 0.7
    assert float(after.coefficients["c1"]) == pytest.approx(c1)
    assert float(after.coefficients["c2"]) == pytest.approx(c2)


def test_averaged_coefficients_come_from_the_server_and_reset_ones_from_the_settings(
    train, start, params, local_outcome
):
    """Two doublings or halvings from 0.25 (c1, broadcast) and 0.5 (c2, settings), where the client
    itself had 7 and 9."""
    _, (update, after, _) = local_outcome
    assert set(update.model.coefficients) == {"c1"}
    assert float(update.model.coefficients["c1"]) == pytest.approx(1.0)  # d_global is tiny
    assert float(after.coefficients["c1"]) == pytest.approx(1.0)
    doublings = np.log2(float(after.coefficients["c2"]) / 0.5)
    assert doublings == pytest.approx(round(doublings), abs=1e-5)
    assert abs(doublings) < 3


def test_caps_bring_both_coefficients_to_the_same_quotient(train, start, params):
    """Where both caps hold, c1 d = c2 KL = max advantage."""
    task = authors(c1=20.0, c2=20.0, learning_rate=0.2, reward_clip=0.1)
    _, _, metrics = train(task, *start(task, **LOCAL), row(params), KEY)
    c1, c2 = (float(metrics["coefficients"][name]) for name in ("c1", "c2"))
    assert c1 < 20
    assert c2 < 20
    capped = c1 * float(metrics["distance_global"][-1])
    assert capped == pytest.approx(c2 * float(metrics["kl_local"][-1]), rel=1e-4)


def test_without_the_guard_absurd_steps_stay(train, start, params):
    task = authors(learning_rate=1e3)
    _, after, metrics = train(task, *start(task, **LOCAL), row(params), KEY)
    assert not metrics["guarded"].any()
    assert float(after.step_scale) == 1
    assert not float(metrics["kl_local"][0]) < 1


# Compilation.


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_no_number_compiles_anything_again(name, start):
    """Every setting that is not static, of the learner, the critic and the algorithm."""
    traces = []

    def counted(task, start, params):
        traces.append(1)
        return local_round(task, start, Traced(task.world, params))

    jitted = jax.jit(counted)
    learner = PolicyOptimisation(iterations=1, steps=4, epochs=1, minibatch=2, hidden=(2,))
    task = Task(Bandit(), ALGORITHMS[name](), learner, CriticSettings(hidden=(2,), epochs=1))
    rest = (Start(*start(task), KEY), row(Bandit().clients(1, KEY)))
    jitted.trace(task, *rest)
    changed = 0
    for group in ("learner", "critic", "algorithm"):
        settings = getattr(task, group)
        for field in dataclasses.fields(settings):
            if not field.metadata["static"]:
                value = jax.tree.map(lambda x: 0.7 * x + 0.01, getattr(settings, field.name))
                other = dataclasses.replace(settings, **{field.name: value})
                jitted.trace(dataclasses.replace(task, **{group: other}), *rest)
                changed += 1
    assert changed >= 14
    assert len(traces) == 1
    longer = dataclasses.replace(learner, iterations=2)
    jitted.trace(dataclasses.replace(task, learner=longer), *rest)
    assert len(traces) == 2
