"""What a client sends and keeps when its round is over."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import Algorithm, FedKL, FedKLAnchored, Scaffold
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Start, Task
from fedkl.clients.round import iteration_keys, message_after
from fedkl.clients.sources import Traced
from fedkl.learning.settings import PERSONAL, CriticSettings
from fedkl.learning.statistics import Moments
from fedkl.worlds import Chain, PointTarget
from fedkl.worlds.probes import PointParams

KEY = jax.random.key(5)
ITERATIONS = 3


def a_task(algorithm, world=None, **learner):
    usual = {"iterations": ITERATIONS, "steps": 16, "epochs": 1, "minibatch": 8, "hidden": (3,)}
    critic = CriticSettings(hidden=(2,), epochs=1, minibatch=16)
    return Task(world or PointTarget(), algorithm, PolicyOptimisation(**usual | learner), critic)


def reported(guarded=(False,) * ITERATIONS, distances=(0.0,) * ITERATIONS):
    return {
        "guarded": jnp.array(guarded),
        "distance_global": jnp.array(distances),
        "steps": jnp.full(ITERATIONS, 16.0),
    }


class Notes(Algorithm):
    """Sends what it was shown of the round."""

    name = "notes"
    summary = "for these tests"

    def adapt_after_round(self, ended):
        return ended.coefficients | {"c2": ended.coefficients["c2"] + 1}

    def finish(self, ended):
        return (), ended._replace(learner=(), key=jax.random.key_data(ended.key))


@pytest.fixture
def over(start):
    """What an algorithm is shown after a round that moved every number of the policy by 2."""

    def shown(metrics, moved=2.0, step_size_sum=5.0, **places):
        task = a_task(Notes(), learning_rate=0.25)
        begun = Start(*start(task, **places), KEY)
        carry = task.learner.begin(task, begun)
        end = carry._replace(
            policy=jax.tree.map(lambda x: x + moved, carry.policy),
            step_size_sum=jnp.array(step_size_sum),
        )
        return begun, *task.learner.finish(task, begun, end, metrics)

    return shown


@pytest.mark.parametrize(
    ("guarded", "expected"),
    [
        ([False, False, False], 3.0),
        ([False, False, True], 2.0),
        ([False, True, True], 1.0),
        ([True, False, True], 2.0),
        ([True, True, False], 3.0),
    ],
)
def test_the_distance_is_that_of_the_last_iteration_that_counts(over, guarded, expected):
    _, trained, _ = over(reported(guarded, [1.0, 2.0, 3.0]))
    assert float(trained.update.message.distance_global) == expected


def test_an_algorithm_is_shown_where_the_round_led_and_what_it_cost(over):
    begun, trained, _ = over(reported())
    ended = trained.update.message
    assert float(ended.step_size_sum) == 0.25 * 5
    moved = jax.tree.leaves(ended.move)
    np.testing.assert_allclose(np.concatenate([np.ravel(x) for x in moved]), 2, rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, ended.global_policy, begun.model.policy)
    assert float(trained.update.weight) == 48


def test_what_is_settled_is_kept_and_reported(over):
    _, trained, after = over(reported())
    assert float(after.coefficients["c2"]) == 2
    assert float(trained.metrics["coefficients"]["c2"]) == 2


def test_the_key_is_none_of_the_iterations(over):
    _, trained, _ = over(reported())
    used = [jax.random.fold_in(KEY, i) for i in range(ITERATIONS)]
    for key in (KEY, *used):
        assert not np.array_equal(jax.random.key_data(key), trained.update.message.key)


@pytest.mark.parametrize("personal", PERSONAL)
def test_the_personal_part_is_kept_and_not_sent(over, personal):
    begun, trained, after = over(reported(), personal=personal)
    kinds = [jax.tree.structure(p) for p in (trained.update.model.policy, begun.model.policy)]
    assert kinds[0] == kinds[1]
    assert jax.tree.structure(after.personal) == jax.tree.structure(begun.client.personal)
    for before, now in ((begun.client.personal, after.personal),):
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(now), strict=True):
            np.testing.assert_allclose(b - a, 2, rtol=1e-5)
    ended = trained.update.message
    assert jax.tree.structure(ended.move) == jax.tree.structure(begun.model.policy)
    # Hooks see whole policies.
    for policy in (ended.policy, ended.global_policy):
        assert policy.network.biases[-1] is not None


@pytest.mark.parametrize("anchors", ["normal", "shared"])
@pytest.mark.parametrize("personal", PERSONAL[:2])
def test_the_shape_of_a_message_is_known_before_the_first_round(start, anchors, personal):
    for algorithm in (FedKLAnchored(anchors=anchors), Scaffold()):
        task = a_task(algorithm, Chain())
        begun = Start(*start(task, personal=personal), KEY)
        message = message_after(task, begun)
        if isinstance(algorithm, Scaffold):
            assert jax.tree.structure(message) == jax.tree.structure(begun.model.policy)
        else:
            assert [x.shape for x in jax.tree.leaves(message)] == (
                [(24, 5)] if anchors == "shared" else []
            )


# Coefficients that are adapted once a round.


def rounds_of(task, begun, params):
    """c1 as each iteration leaves it, what was measured, and what comes of the round."""
    improve, fit = jax.jit(task.learner.improve), jax.jit(task.learner.fit_critic)
    carry, seen, rows = task.learner.begin(task, begun), [], []
    for i in range(ITERATIONS):
        acts = task.learner.behaviour(task, begun, carry)
        data = Traced(task.world, params).collect(acts, 16, iteration_keys(KEY, i)[0])
        cleaned = task.learner.clean(task, data)
        carry, batch, metrics = improve(task, begun, carry, data, cleaned, jnp.asarray(i))
        carry = fit(task, begun, carry, batch, jnp.asarray(i))
        seen.append({name: float(c) for name, c in carry.coefficients.items()})
        rows.append(metrics)
    metrics = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    return seen, metrics, task.learner.finish(task, begun, carry, metrics)


def test_once_a_round_c1_waits_for_the_end_of_it_while_c2_does_not(start):
    task = a_task(FedKL(c1=0.5, d_global=1e-6, c1_adapted="round"), learning_rate=1e-3, d_local=1.0)
    begun = Start(*start(task), KEY)
    seen, metrics, (trained, after) = rounds_of(task, begun, PointParams(np.float32(0.5)))
    assert [c["c1"] for c in seen] == [0.5] * 3
    assert [c["c2"] for c in seen] == [0.5, 0.25, 0.125]
    assert float(metrics["distance_global"][-1]) > 1.1e-6
    assert float(after.coefficients["c1"]) == 1
    assert float(trained.metrics["coefficients"]["c1"]) == 1


@pytest.mark.parametrize(
    ("guarded", "step_size_sum", "expected"),
    [
        ([False, False, False], 3.0, 1.0),  # 0.9 is too far from the global policy
        ([False, False, True], 2.0, 0.25),  # 0.1 is too near
        ([False, True, True], 1.0, 0.5),  # 0.6 is right
        ([True, True, True], 0.0, 0.5),  # nothing counts
    ],
)
def test_once_a_round_c1_goes_by_the_last_distance_that_counts(
    start, guarded, step_size_sum, expected
):
    task = a_task(FedKL(c1=0.5, d_global=0.6, c1_adapted="round"))
    begun = Start(*start(task), KEY)
    end = task.learner.begin(task, begun)._replace(step_size_sum=jnp.array(step_size_sum))
    _, after = task.learner.finish(task, begun, end, reported(guarded, [0.6, 0.1, 0.9]))
    assert float(after.coefficients["c1"]) == expected


class Settles(Algorithm):
    """Would make all coefficients 9."""

    name = "settles"
    summary = "for this test"

    def adapt_after_round(self, ended):
        return {name: jnp.array(9.0) for name in ended.coefficients}


def test_who_went_nowhere_settles_nothing(start):
    """Whatever was measured last does not count, even if it is not a number."""
    task = a_task(Settles())
    begun = Start(*start(task), KEY)
    still = task.learner.begin(task, begun)
    metrics = reported([True] * 3, [float("nan")] * 3)
    for step_size_sum, expected in ((0.0, 1.0), (0.1, 9.0)):
        end = still._replace(step_size_sum=jnp.array(step_size_sum))
        trained, after = task.learner.finish(task, begun, end, metrics)
        assert float(after.coefficients["c2"]) == expected
        assert float(trained.metrics["coefficients"]["c2"]) == expected


def test_a_settled_coefficient_that_is_averaged_is_sent(start):
    task = a_task(FedKLAnchored(c_a=0.5, d_anchor=0.3))
    begun = Start(*start(task), KEY)
    still = task.learner.begin(task, begun)
    for step_size_sum, expected in ((1.0, 0.25), (0.0, 0.5)):  # KL is 0; then nothing was measured
        end = still._replace(step_size_sum=jnp.array(step_size_sum))
        trained, after = task.learner.finish(task, begun, end, reported())
        assert float(trained.update.model.coefficients["c_a"]) == expected
        assert float(trained.metrics["coefficients"]["c_a"]) == expected
        assert float(after.coefficients["c_a"]) == expected


# Observations that are given up.


def test_what_leaves_is_as_it_was_observed(train, start):
    """The only observation is 1, whatever it is standardised to."""
    task = a_task(FedKLAnchored(anchors="shared"), iterations=1)
    model, client = start(task)
    sent = Moments(np.float32(4), np.array([3.0], np.float32), np.array([4.0], np.float32))
    model = eqx.tree_at(lambda m: m.observations, model, sent)
    message = train(task, model, client, PointParams(np.float32(0.5)), KEY).update.message
    np.testing.assert_array_equal(message, np.ones((24, 1), np.float32))


def sampled(start, real, episodes=40):
    """What is taken of 40 different observations, of which only some are real."""
    task = a_task(FedKLAnchored(anchors="shared"), steps=episodes)
    begun = Start(*start(task), KEY)
    carry = task.learner.begin(task, begun)
    data = Traced(task.world, PointParams(np.float32(0.5))).collect(
        task.learner.behaviour(task, begun, carry), episodes, KEY
    )
    data = data._replace(
        observation=jnp.arange(episodes, dtype=float).reshape(1, episodes, 1),
        mask=jnp.arange(episodes)[None] < real,
    )
    cleaned = task.learner.clean(task, data)
    after, _, _ = jax.jit(task.learner.improve)(task, begun, carry, data, cleaned, jnp.asarray(0))
    return np.asarray(after.sample)[:, 0].astype(int).tolist()


@pytest.mark.parametrize("real", [40, 30, 24])
def test_a_sample_holds_different_observations_as_far_as_there_are_so_many(start, real):
    found = sampled(start, real)
    assert len(found) == len(set(found)) == 24
    assert max(found) < real
    assert found != sorted(found)


def test_a_sample_of_few_observations_holds_each_of_them(start):
    found = sampled(start, real=10)
    assert set(found) == set(range(10))
    assert {found.count(n) for n in range(10)} == {2, 3}


def test_only_what_was_observed_is_given_up(train, start):
    """In the chain an episode ends at position 4, which nobody acts in; what comes after is
    padding. Without statistics an observation is a position, one-hot."""
    task = a_task(FedKLAnchored(anchors="shared"), Chain(), iterations=1)
    params = jax.tree.map(lambda x: x[0], task.world.clients(1, KEY))
    outcome = train(task, *start(task), params, KEY)
    assert float(outcome.update.weight) < 200
    np.testing.assert_array_equal(outcome.update.message[:, 4], np.zeros(24))
    np.testing.assert_array_equal(outcome.update.message.sum(axis=1), np.ones(24))
    assert len(np.unique(np.argmax(outcome.update.message, axis=1))) > 1
