"""What an algorithm's hooks are told in a round, and what becomes of what they say.

A round has two iterations of two gradient steps (8 samples, minibatches of 4, one epoch), numbered
0 .. 3. The hook `gradient` replaces every gradient by a number it was told, so the policy shows it:
with a step size of 1/64 it moves by minus the sum of all four, over 64.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import Algorithm, Coefficient
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Task
from fedkl.learning.settings import CriticSettings
from fedkl.learning.statistics import Moments
from fedkl.worlds import PointTarget
from fedkl.worlds.probes import PointParams

KEY = jax.random.key(5)
PARAMS = PointParams(np.float32(0.5))
RATE = 1 / 64


TELLING = {
    "two": lambda at: 2.0,
    "step": lambda at: at.step,
    "half to the step": lambda at: 0.5**at.step,
    "iteration": lambda at: at.iteration,
    "own": lambda at: at.client_state,
    "shared": lambda at: at.server_state["seven"],
    "coefficient": lambda at: at.coefficients["told"],
    "mean": lambda at: at.statistics.mean[0],
    "count": lambda at: at.statistics.count,
    "observation": lambda at: at.batch.observation.mean(),
    "key": lambda at: 1 + jax.random.uniform(at.key),
    "gap": lambda at: 64 + at.policy.log_std[0] - at.global_policy.log_std[0],
    "absurd at first": lambda at: jnp.where(at.iteration == 0, 1e6, 2.0),
}


class Told(Algorithm):
    """Replaces gradients by what it was told, keeps 5 and shares 7."""

    name = "told"
    summary = "for these tests"

    tell: int = 0
    """Which of `TELLING`, as a number: one compiled round serves all."""
    only: int = -1
    """The step whose gradient counts; -1: all."""

    def coefficients(self):
        return {"told": Coefficient(3.0, (0.0, 1e6))}

    def client_state(self, policy):
        return jnp.array(5.0)

    def server_state(self, policy):
        return {"seven": jnp.array(7.0)}

    def gradient(self, gradient, at):
        counts = (self.only < 0) | (at.step == self.only)
        everything = jnp.stack([jnp.asarray(tell(at), float) for tell in TELLING.values()])
        told = jnp.where(counts, everything[self.tell], 0.0)
        return jax.tree.map(lambda g: jnp.zeros_like(g) + told, gradient)

    def finish(self, result):
        message = {
            "step_size_sum": result.step_size_sum,
            "moved": result.policy.log_std - result.global_policy.log_std,
            "from shared": result.server_state["seven"] * 2,
        }
        return result.client_state + 1, message


def telling(name, only=-1):
    return Told(tell=list(TELLING).index(name), only=only)


def a_task(algorithm, **numbers):
    learner = PolicyOptimisation(
        iterations=2,
        steps=8,
        epochs=1,
        minibatch=4,
        hidden=(),
        **({"learning_rate": RATE, "guard_multiple": 1e9} | numbers),
    )
    critic = CriticSettings(hidden=(), epochs=1, minibatch=8)
    return Task(PointTarget(), algorithm, learner, critic)


@pytest.fixture(scope="module")
def begun(start):
    """A client that is sent statistics of 4 observations with mean 3 and deviation 1."""

    def make(task):
        model, client = start(task)
        moments = Moments(np.float32(4), np.array([3.0], np.float32), np.array([4.0], np.float32))
        return eqx.tree_at(lambda m: m.observations, model, moments), client

    return make


@pytest.fixture(scope="module")
def told(train, begun):
    """The sum of what the steps of a round were told."""

    def total(name, only=-1):
        task = a_task(telling(name, only))
        model, client = begun(task)
        policy = train(task, model, client, PARAMS, KEY).update.model.policy
        moved = jax.tree.map(lambda a, b: (b - a) / RATE, policy, model.policy)
        numbers = np.concatenate([np.ravel(x) for x in jax.tree.leaves(moved)])
        np.testing.assert_allclose(numbers, numbers[0], rtol=1e-4, atol=1e-4)
        return float(numbers[0])

    return total


def test_steps_are_numbered_through_the_round(told):
    assert told("step") == pytest.approx(0 + 1 + 2 + 3, rel=1e-4)


def test_a_gradient_can_be_scaled_by_its_step(told):
    """1, 1/2, 1/4 and 1/8."""
    assert told("half to the step") == pytest.approx(15 / 8, rel=1e-4)


def test_iterations_are_numbered_from_zero(told):
    assert told("iteration") == pytest.approx(0 + 0 + 1 + 1, rel=1e-4)


def test_what_the_client_keeps_is_there(told):
    assert told("own") == pytest.approx(4 * 5, rel=1e-4)


def test_what_the_server_shares_is_there(told):
    assert told("shared") == pytest.approx(4 * 7, rel=1e-4)


def test_coefficients_are_there(told):
    assert told("coefficient") == pytest.approx(4 * 3, rel=1e-4)


def test_statistics_are_those_that_the_iteration_acted_on(told):
    """Mean 3 of 4 samples in the first iteration; in the second with 8 samples of 1 among them."""
    mean = told("mean")
    assert mean == pytest.approx(2 * 3 + 2 * (4 * 3 + 8) / 12, rel=1e-4)
    assert told("count") == pytest.approx(2 * 4 + 2 * 12, rel=1e-4)


def test_observations_in_the_batch_are_standardised_with_them(told):
    """The only observation, 1: (1 - 3) / 1 = -2, then against mean 5/3 and 12 squared deviations
    of 4 + (4 * 8 / 12) 2^2 = 44/3."""
    second = (1 - 5 / 3) / (44 / 36) ** 0.5
    total = told("observation")
    assert total == pytest.approx(2 * -2 + 2 * second, rel=1e-4)


def test_every_step_has_another_key(told):
    drawn = [told("key", only=step) for step in range(4)]
    assert all(1 < x < 2 for x in drawn)
    assert len({round(x, 3) for x in drawn}) == 4


def test_the_global_policy_is_where_the_round_began(told):
    """All parameters are one apart after a step against a gradient of 64, and so on."""
    gap = told("gap")
    gaps = [0.0]
    for _ in range(4):
        gaps.append(gaps[-1] - (64 + gaps[-1]) / 64)
    assert gap == pytest.approx(-64 * gaps[-1], rel=1e-4)


class Adapts(Told):
    """Notes what `adapt` was told."""

    name = "adapts"

    def adapt(self, at, measured):
        told = at.step + 10 * at.iteration + 100 * at.client_state + 1000 * at.server_state["seven"]
        return at.coefficients | {"told": told + 10_000 * at.coefficients["c2"]}


def test_adapting_comes_after_the_iterations_steps_and_after_c2(train, begun):
    """4 steps, iteration 1; c2 was halved twice, from 1, as the policy does not move."""
    task = a_task(Adapts(), d_local=1.0)
    model, client = begun(task)
    after = train(task, model, client, PARAMS, KEY).after
    assert float(after.coefficients["c2"]) == 0.25
    assert float(after.coefficients["told"]) == 4 + 10 + 500 + 7000 + 2500


# After the last iteration.


def test_what_is_finished_is_kept_and_sent(train, begun):
    task = a_task(telling("two"))
    model, client = begun(task)
    update, after, _ = train(task, model, client, PARAMS, KEY)
    assert float(after.own) == 6
    assert float(update.message["step_size_sum"]) == pytest.approx(4 * RATE)
    assert float(update.message["moved"][0]) == pytest.approx(-4 * 2 * RATE, rel=1e-4)
    assert float(update.message["from shared"]) == 14
    assert update.model.shared == ()


def test_what_is_kept_goes_into_the_next_round(train, begun):
    task = a_task(telling("own"))
    model, client = begun(task)
    after = train(task, model, client, PARAMS, KEY).after
    update, after, _ = train(task, model, jax.device_get(after), PARAMS, KEY)
    assert float(update.message["moved"][0]) == pytest.approx(-4 * 6 * RATE, rel=1e-4)
    assert float(after.own) == 7


def test_smaller_steps_are_a_shorter_way(train, begun):
    """A client whose steps were halved: two of 0.5, and two of 0.55 as the scale recovers."""
    task = a_task(telling("two"))
    model, client = begun(task)
    halved = eqx.tree_at(lambda c: c.step_scale, client, np.float32(0.5))
    message = train(task, model, halved, PARAMS, KEY).update.message
    assert float(message["step_size_sum"]) == pytest.approx((2 * 0.5 + 2 * 0.55) * RATE)
    assert float(message["moved"][0]) == pytest.approx(-2 * (2 * 0.5 + 2 * 0.55) * RATE, rel=1e-4)


def test_what_the_guard_took_back_is_no_way(train, begun):
    """Gradients of 1e6 in the first iteration, of 2 in the second, at half the step size."""
    task = a_task(telling("absurd at first"), guard_multiple=1e3)
    model, client = begun(task)
    update, _, metrics = train(task, model, client, PARAMS, KEY)
    assert metrics["guarded"].tolist() == [True, False]
    assert float(update.message["step_size_sum"]) == pytest.approx(2 * 0.5 * RATE)
    assert float(update.message["moved"][0]) == pytest.approx(-2 * 2 * 0.5 * RATE, rel=1e-4)
