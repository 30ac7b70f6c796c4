"""What an update may be at the most: exactly so much passes, a little more does not."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.clients.records import Model, Trained, Update
from fedkl.learning.policy import MLP, Policy
from fedkl.learning.settings import LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.server.validation import (
    LARGEST_RETURN,
    LONGEST,
    Limits,
    problem_with,
    problem_with_model,
)
from fedkl.worlds import PointTarget

F32 = np.float32
LARGEST = 1e6
KEY = jax.random.key(0)


def moments(count: float, mean: Any, squares: Any) -> Moments:
    return Moments(*(np.asarray(x, F32) for x in (count, mean, squares)))


def data(samples: np.ndarray) -> Moments:
    """The moments of samples, as a client reports them."""
    mean = samples.mean(axis=0)
    return moments(len(samples), mean, np.square(samples - mean).sum(axis=0))


def policy(weight: float, bias: float) -> Policy:
    """A network with one weight and one bias, and actions of deviation 1, whose logarithm is 0."""
    blank = Policy(PointTarget(), LearnerSettings(hidden=(), initial_log_std=0.0), KEY)
    return eqx.tree_at(lambda p: p.network, jax.device_get(blank), critic(weight, bias))


def critic(weight: float, bias: float) -> MLP:
    arrays = (np.array([[weight]], F32),), (np.array([bias], F32),)
    return eqx.tree_at(lambda n: (n.weights, n.biases), MLP((1, 1), KEY), arrays)


# Two observations: mean 3 and deviation 1, and 2 everywhere; rewards of mean 0 and deviation 0.5.
MODEL = Model(
    policy=policy(3, 4),
    critic=critic(0.25, 0.5),
    observations=moments(640, [3, 2], [640, 0]),
    rewards=moments(640, 0, 160),
    coefficients={"c1": F32(1)},
    shared={"c": np.array([0, 12], F32)},
)
LIMITS = Limits(
    max_weight=64.0,
    iterations=2,
    max_relative_norm=2.0,
    max_statistics_factor=20.0,
    max_move_factor=5.0,
    max_magnitude=LARGEST,
    max_message_norm=2.0,
    coefficients={"c1": (0.1, 20.0), "c2": (0.5, 4.0)},
    growth={"c1": 2.0, "c2": np.inf},
    message={"c": np.zeros(2, F32)},
)
HONEST = Trained(
    Update(
        Model(
            policy=policy(3.1, 4),
            critic=critic(0.3, 0.5),
            observations=moments(48, [2.5, 2], [40, 0]),
            rewards=moments(48, 0.1, 12),
            coefficients={"c1": F32(2)},
            shared=(),
        ),
        weight=F32(48),
        message={"c": np.array([0, 1], F32)},
    ),
    {
        "kl_local": np.array([0.1, 0.2], F32),
        "distance_global": np.array([0.1, 0.2], F32),
        "guarded": np.array([False, False]),
        "steps": np.array([32, 16], F32),
        "train_return": np.array([-1, 1], F32),
        "outliers": np.array([0, 1], F32),
        "coefficients": {"c1": F32(2), "c2": F32(1)},
        "step_scale": F32(1),
    },
)


def problem(where: Any, value: Any, model: Model = MODEL, limits: Limits = LIMITS) -> str | None:
    """What is said of the honest answer with something else in one place."""
    return problem_with(eqx.tree_at(where, HONEST, value), model, limits)


def above(x: float) -> np.float32:
    return np.nextafter(F32(x), F32(np.inf))


def below(x: float) -> np.float32:
    return np.nextafter(F32(x), F32(-np.inf))


def test_an_honest_update_has_no_problem():
    assert problem_with(HONEST, MODEL, LIMITS) is None


# Structure.


class Labelled(eqx.Module):
    """Has something that is not an array."""

    c: np.ndarray
    label: str = eqx.field(static=True)


def test_a_message_must_also_agree_in_what_is_not_an_array():
    limits = LIMITS._replace(message=Labelled(np.zeros(2, F32), "ours"))
    for label, expected in {
        "ours": None,
        "theirs": "message is of another structure than expected",
    }.items():
        sent = Labelled(np.ones(2, F32), label)
        assert problem(lambda t: t.update.message, sent, limits=limits) == expected


def test_parts_that_stay_on_the_clients_must_not_be_sent():
    model = eqx.tree_at(lambda m: (m.critic, m.rewards), MODEL, (None, None))
    assert problem_with(HONEST, model, LIMITS) == "critic is of another type than expected"
    kept = eqx.tree_at(
        lambda t: (t.update.model.critic, t.update.model.rewards), HONEST, (None,) * 2
    )
    assert problem_with(kept, model, LIMITS) is None


def test_a_reason_is_short_and_in_one_line():
    found = problem(lambda t: t.update.message, {"c\n" * 1000: np.zeros(2, F32)})
    assert found == "message.c is missing"
    found = problem(lambda t: t.update.message, {"a\n" * 1000: 0.0, "c": np.zeros(2, F32)})
    assert found == ("message." + "a?" * LONGEST)[: LONGEST - 3] + "..."


# Networks: the policy's norm is 5, so with a factor of 2 it may move by 10; the critic's is below 1
# and counts as 1, so it may move by 2.


@pytest.mark.parametrize(
    ("network", "near", "far", "said"),
    [
        (policy, (13, 4), (above(13), 4), "policy moved by 10, more than 10"),
        (policy, (-3, -4), (-3, below(-4)), "policy moved by 10, more than 10"),
        (critic, (0.25, 2.5), (0.25, above(2.5)), "critic moved by 2, more than 2"),
    ],
)
def test_a_network_moves_as_far_as_it_may_and_no_further(network, near, far, said):
    for sent, expected in (near, None), (far, said):
        place = attrgetter(f"update.model.{network.__name__}")
        assert problem(place, network(*sent)) == expected


def test_no_parameter_goes_beyond_the_largest_number_however_short_the_step():
    model = eqx.tree_at(lambda m: m.policy, MODEL, policy(LARGEST, 0))
    for value, expected in (LARGEST, None), (above(LARGEST), "policy holds a number beyond 1e+06"):
        assert problem(lambda t: t.update.model.policy, policy(value, 0), model) == expected


# The weight: 2 iterations of at most 32 steps.


@pytest.mark.parametrize("weight", [0, 0.5, -1, 65, 48.5, 1e18, 1e30])
def test_a_weight_is_a_whole_number_of_steps_that_a_client_can_have_trained(weight):
    said = f"weight is {float(F32(weight)):.9g}, not a whole number of steps from 1 to 64"
    assert problem(lambda t: t.update.weight, F32(weight)) == said


def test_all_steps_that_there_can_be_are_believed():
    def place(t: Trained) -> Any:
        return t.update.weight, t.metrics["steps"]

    assert problem(place, (F32(64), np.array([32, 32], F32))) is None


def test_more_steps_than_float32_counts_may_be_off_by_rounding():
    limits = LIMITS._replace(max_weight=2.0**26)

    def answer(weight: float) -> str | None:
        sent = (F32(weight), np.full(2, 2**25, F32))
        return problem(lambda t: (t.update.weight, t.metrics["steps"]), sent, limits=limits)

    assert answer(2**26) is None
    assert answer(2**26 + 64) is None
    assert "not a whole number of steps" in str(answer(2**26 + 1024))


# Statistics.


def seen(new: Moments, known: Moments = MODEL.observations, **limits: float) -> str | None:
    """What is said of observations, given those that the server knows."""
    model = eqx.tree_at(lambda m: m.observations, MODEL, known)
    return problem(lambda t: t.update.model.observations, new, model, LIMITS._replace(**limits))


@pytest.mark.parametrize("count", [-1, 0.5, 49, 1e30])
def test_a_count_is_a_whole_number_up_to_the_weight(count):
    found = seen(moments(count, [3, 2], [1, 0]))
    said = f"is {float(F32(count)):.9g}, not a whole number from 0 to the weight, 48"
    assert found == f"observations.count {said}"


def test_as_many_samples_as_steps_and_fewer_are_believed():
    for count in 1, 48:
        assert seen(moments(count, [3, 2], [1, 0])) is None


def test_there_are_no_negative_squares():
    assert seen(moments(48, [3, 2], [-0.0, 0])) is None
    assert seen(moments(48, [3, 2], [-1e-45, 0])) == "observations.squares is negative"


def test_the_moments_of_nothing_are_0():
    said = "observations are moments of nothing that are not 0"
    assert seen(moments(0, [0, 0], [0, 0])) is None
    assert seen(moments(0, [0, 1], [0, 0])) == said
    assert seen(moments(0, [0, 0], [1, 0])) == said


def test_means_and_deviations_end_at_the_largest_number():
    squares = 0.9999 * 48 * F32(LARGEST) ** 2
    assert seen(moments(48, [LARGEST, -LARGEST], [squares, 0])) is None
    assert seen(moments(48, [above(LARGEST), 0], [0, 0])) == (
        "observations have a mean of 1e+06, beyond 1e+06"
    )
    assert seen(moments(48, [0, 0], [1.001 * squares, 0])) == (
        "observations have a deviation of 1e+06, beyond 1e+06"
    )


def test_statistics_that_are_not_shared_are_not_judged():
    model = eqx.tree_at(lambda m: m.observations, MODEL, None)
    assert problem(lambda t: t.update.model.observations, None, model) is None


# Coefficients.


def test_coefficients_stay_in_their_bounds():
    def place(t: Trained) -> Any:
        return t.update.model.coefficients["c1"], t.metrics["coefficients"]["c1"]

    known = eqx.tree_at(lambda m: m.coefficients["c1"], MODEL, F32(10))
    for value in F32(0.1), F32(20):
        assert problem(place, (value, value), known) is None
    for value in below(0.1), above(20):
        said = f"coefficients.c1 is {float(value):.6g}, not from 0.1 to 20"
        assert problem(place, (value, value)) == said


def test_a_coefficient_grows_no_faster_than_its_rule():
    # c1 was broadcast as 1, and is adapted once in a round.
    def place(t: Trained) -> Any:
        return t.update.model.coefficients["c1"], t.metrics["coefficients"]["c1"]

    assert problem(place, (F32(2), F32(2))) is None
    said = "coefficients.c1 is 20, over 2, which a round allows"
    assert problem(place, (F32(20), F32(20))) == said
    # One that started below its bounds is pulled into them.
    low = eqx.tree_at(lambda m: m.coefficients["c1"], MODEL, F32(0.01))
    assert problem(place, (F32(0.1), F32(0.1)), low) is None
    assert problem(place, (above(0.1), above(0.1)), low) is not None


# Messages: what the algorithm shares has norm 12, so a message may have norm 24.


def test_a_message_is_as_long_as_it_may_be_and_no_longer():
    assert problem(lambda t: t.update.message["c"], np.array([0, -24], F32)) is None
    said = "message has norm 24, more than 24"
    assert problem(lambda t: t.update.message["c"], np.array([0, above(24)], F32)) == said


def test_a_message_holds_no_number_beyond_the_largest():
    model = eqx.tree_at(lambda m: m.shared["c"], MODEL, np.array([0, LARGEST], F32))
    assert problem(lambda t: t.update.message["c"], np.array([0, LARGEST], F32), model) is None
    far = np.array([0, above(LARGEST)], F32)
    said = "message holds a number beyond 1e+06"
    assert problem(lambda t: t.update.message["c"], far, model) == said


def test_observations_that_are_sent_can_be_among_those_that_the_moments_are_of():
    # Squares of 36 in the first feature: nothing is further than 6 from the mean of 3.
    limits = LIMITS._replace(
        message=np.zeros((2, 2), F32), sends_observations=True, max_message_norm=np.inf
    )

    def place(t: Trained) -> Any:
        return t.update.message, t.update.model.observations

    for far, expected in (9, None), (-3, None), (9.1, "rule out"), (-4, "rule out"):
        sent = np.array([[3, 2], [far, 2]], F32), moments(48, [3, 2], [36, 0])
        found = problem(place, sent, limits=limits)
        assert (found is None) if expected is None else found.endswith(expected)


# Metrics.


@pytest.mark.parametrize("name", ["kl_local", "distance_global"])
def test_divergences_of_iterations_that_count_are_numbers(name):
    said = f"metrics.{name} is not finite, or beyond 1e+06"
    for value, expected in (LARGEST, None), (above(LARGEST), said), (np.nan, said):
        sent = np.array([value, 0], F32)
        assert problem(lambda t: t.metrics[name], sent) == expected
        rolled_back = (sent, np.array([True, False]))
        assert problem(lambda t: (t.metrics[name], t.metrics["guarded"]), rolled_back) is None


@pytest.mark.parametrize(
    ("outliers", "ok"),
    [
        ([32, 16], True),
        ([0, 0], True),
        ([33, 0], False),
        ([-1, 0], False),
        ([0.5, 0], False),
        ([np.nan, 0], False),
    ],
)
def test_no_more_steps_have_broken_readings_than_there_are(outliers, ok):
    found = problem(lambda t: t.metrics["outliers"], np.array(outliers, F32))
    assert found == (
        None if ok else "metrics.outliers are not whole numbers from 0 to metrics.steps"
    )


def test_the_last_return_is_a_number():
    assert problem(lambda t: t.metrics["train_return"], np.array([np.nan, 1], F32)) is None
    found = problem(lambda t: t.metrics["train_return"], np.array([1, np.inf], F32))
    assert found == "metrics.train_return is beyond 1e+15"
    for value, ok in (LARGEST_RETURN, True), (-3e38, False):
        found = problem(lambda t: t.metrics["train_return"], np.array([1, value], F32))
        assert (found is None) is ok


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([32, 16], None),
        ([16, 32], None),
        ([33, 15], "metrics.steps are not whole numbers from 0 to 32"),
        ([-1, 49], "metrics.steps are not whole numbers from 0 to 32"),
        ([23.5, 24.5], "metrics.steps are not whole numbers from 0 to 32"),
        ([32, 15], "metrics.steps add up to 47, not to the weight, 48"),
        ([32, 17], "metrics.steps add up to 49, not to the weight, 48"),
    ],
)
def test_the_steps_of_all_iterations_are_the_weight(steps, said):
    assert problem(lambda t: t.metrics["steps"], np.array(steps, F32)) == said


def test_a_step_is_at_most_a_whole_one():
    for scale in 0, 1:
        assert problem(lambda t: t.metrics["step_scale"], F32(scale)) is None
    for scale in below(0), above(1), F32(np.nan):
        said = f"metrics.step_scale is {float(scale):.6g}, not from 0 to 1"
        assert problem(lambda t: t.metrics["step_scale"], scale) == said


def test_reported_coefficients_are_those_that_were_sent_and_in_their_bounds():
    assert problem(lambda t: t.metrics["coefficients"]["c1"], above(2)) == (
        "metrics.coefficients.c1 is not the one in the update"
    )
    assert problem(lambda t: t.metrics["coefficients"]["c2"], F32(4)) is None
    assert problem(lambda t: t.metrics["coefficients"]["c2"], F32(5)) == (
        "metrics.coefficients.c2 is 5, not from 0.5 to 4"
    )


# What came of it.


def test_a_sound_model_may_be_taken():
    assert problem_with_model(MODEL, LARGEST) is None


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (lambda m: m.policy.log_std, [np.nan], "policy.log_std would not be finite"),
        (lambda m: m.shared["c"], [0, np.inf], "shared.c would not be finite"),
        # Fine in float64, which the server computes in, but clients could not take it.
        (lambda m: m.rewards.squares, 1e39, "rewards.squares would not be finite"),
        (lambda m: m.rewards.squares, 1e38, None),
        (lambda m: m.critic.biases[0], [-LARGEST], None),
        (lambda m: m.critic.biases[0], [1.01 * LARGEST], "critic holds a number beyond 1e+06"),
    ],
)
def test_a_model_that_clients_could_not_train_from_is_not_taken(place, value, said):
    assert (
        problem_with_model(eqx.tree_at(place, MODEL, np.asarray(value, np.float64)), LARGEST)
        == said
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.nan, None),  # there was no such number
        (LARGEST_RETURN, None),  # more than a network's parameters may be
        (-1e14, None),
        (np.inf, "metrics.counted is beyond 1e+15"),
        (1.1e15, "metrics.counted is beyond 1e+15"),
    ],
)
def test_a_learners_own_metric_may_be_anything_that_a_log_can_hold(value, said):
    sent = HONEST._replace(metrics=HONEST.metrics | {"counted": np.array([value, 1], F32)})
    limits = LIMITS._replace(logged=("counted",))
    assert problem_with(sent, MODEL, limits) == said
    assert problem_with(HONEST, MODEL, limits) == "metrics.counted is missing"
    assert problem_with(sent, MODEL, LIMITS) == "metrics.counted is not expected"
