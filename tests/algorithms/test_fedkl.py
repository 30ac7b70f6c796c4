"""FedKL's penalty in distribution space, and the adaptation of c1."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import Coefficient, FedKL, Measured
from fedkl.core.errors import UserError
from fedkl.learning.distributions import DISTANCES
from fedkl.learning.penalty import SCHEDULES
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import at_step
from fedkl.learning.settings import LearnerSettings
from fedkl.worlds import Chain

KL = 3.5 - math.log(2)  # of the two Gaussians of the batch, from the global one
BY_HAND = {
    "sqrt_kl": (KL / 2) ** 0.5,
    "sqrt_kl_unhalved": KL**0.5,
    "kl": KL,
    "tv": (1 - 2 * math.exp(-3.5)) ** 0.5,  # Bretagnolle and Huber's bound is the smaller here
    "mahalanobis": 1.0,  # the means are 2 apart, and the global deviation is 2
    "wasserstein": 5**0.5,  # means 2 apart, deviations 1
}


@pytest.mark.parametrize("distance", list(DISTANCES))
def test_the_penalty_is_c1_times_the_mean_distance_over_real_samples(hand, distance):
    h = hand.objective(FedKL(distance=distance), c1=0.3, c2=2.0)
    expected = hand.gain - 0.3 * BY_HAND[distance] - 2.0 * hand.kl_local
    assert h == pytest.approx(expected, rel=1e-5)


def test_the_distance_is_the_papers_unless_set(hand):
    h = hand.objective(FedKL(), c1=1.0, c2=0.0)
    assert h == pytest.approx(hand.gain - BY_HAND["sqrt_kl"], rel=1e-5)


def test_the_distance_is_averaged_over_states(hand, normal):
    """pi = N(s, 1) and pi^t = N(0, 1): sqrt(KL/2) is |s| / 2 in state s."""
    states = jnp.array([[1.0], [3.0], [100.0]])
    broadcast = normal(0.0, 0.0, 1.0)
    batch = hand.batch._replace(observation=states, broadcast=broadcast.network(states))
    now = hand.now()._replace(previous_policy=broadcast, global_policy=broadcast)
    at = at_step(now, normal(1.0, 0.0, 1.0), batch, 0)
    assert float(FedKL().distance_to_global(at)) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("distance", list(DISTANCES))
def test_the_gradient_at_the_global_policy_is_zero_and_not_nan(hand, distance):
    """Every round's first gradient is taken there."""
    algorithm = FedKL(distance=distance)
    discrete = Policy(Chain(), LearnerSettings(hidden=(), output_scale=1.0), jax.random.key(1))
    for policy, states in [(hand.policy, jnp.ones((3, 1))), (discrete, jnp.eye(5))]:

        def penalty(moving, fixed=policy, states=states):
            batch = hand.batch._replace(
                observation=states, broadcast=fixed.network(states), weight=jnp.ones(len(states))
            )
            now = hand.now(c1=1.0)._replace(previous_policy=fixed, global_policy=fixed)
            return algorithm.penalty(at_step(now, moving, batch, 0))

        for leaf in jax.tree.leaves(jax.jit(jax.grad(penalty))(policy)):
            # The KL of equal categoricals is 0 only up to rounding, and its root magnifies that.
            np.testing.assert_allclose(leaf, 0, atol=1e-4)


@pytest.fixture
def adapted(hand):
    """c1 after an iteration that measured a distance."""

    def after(algorithm, c1, distance, max_advantage=1.0):
        measured = Measured(jnp.array(0.01), jnp.array(distance), jnp.array(max_advantage))
        coefficients = algorithm.adapt(hand.at(c1=c1, c2=7.0), measured)
        assert float(coefficients["c2"]) == 7
        return float(coefficients["c1"])

    return after


@pytest.mark.parametrize(
    ("distance", "factor"), [(0.54, 0.5), (0.546, 1), (0.6, 1), (0.659, 1), (0.661, 2)]
)
def test_c1_halves_and_doubles_around_d_global(adapted, distance, factor):
    algorithm = FedKL(d_global=0.6, c1_bounds=(1e-4, 20.0))
    assert adapted(algorithm, 0.5, distance) == pytest.approx(0.5 * factor)


def test_c1_stays_within_its_bounds(adapted):
    algorithm = FedKL(d_global=0.6, c1_bounds=(0.1, 2.0))
    assert adapted(algorithm, 0.15, 0.0) == pytest.approx(0.1)
    assert adapted(algorithm, 1.5, 9.0) == 2


@pytest.mark.parametrize(
    ("c1", "distance", "max_advantage", "expected"),
    [
        (4.0, 2.0, 6.0, 3.0),  # doubled to 8, above 6/2
        (1.0, 2.0, 6.0, 2.0),  # doubled to 2, below 6/2
        (15.0, 1.0, 100.0, 20.0),  # the fixed bound is the lower one
        (1.0, 2.0, 1e-9, 0.1),  # a cap below the lower bound yields to it
        (1.0, 0.0, 6.0, 0.5),  # no distance, no cap
    ],
)
def test_c1_is_capped_by_the_advantage_if_asked(adapted, c1, distance, max_advantage, expected):
    algorithm = FedKL(d_global=0.6, c1_bounds=(0.1, 20.0), c1_cap_by_advantage=True)
    assert adapted(algorithm, c1, distance, max_advantage) == pytest.approx(expected)


def test_a_batch_without_advantage_leaves_c1_a_number(adapted):
    """All rewards alike: no advantage, no gradient, no distance."""
    algorithm = FedKL(c1_bounds=(0.1, 20.0), c1_cap_by_advantage=True)
    assert 0.1 <= adapted(algorithm, 1.0, 0.0, 0.0) <= 1.0


@pytest.mark.parametrize("rule", ["kept", "averaged", "reset"])
def test_c1_starts_where_it_is_told_and_follows_its_rule(rule):
    algorithm = FedKL(c1=0.25, c1_bounds=(0.125, 2.0), c1_across_rounds=rule)
    assert algorithm.coefficients() == {"c1": Coefficient(0.25, (0.125, 2.0), rule)}


def test_bounds_of_c1_the_wrong_way_round_are_refused():
    message = r"^algorithm\.c1_bounds must be in ascending order, not 2, 1$"
    with pytest.raises(UserError, match=message):
        FedKL(c1_bounds=(2, 1))
    with pytest.raises(UserError, match=r"^algorithm\.c1_bounds must be in ascending order"):
        fedkl.preset("probe-point", "fedkl", set={"algorithm.c1_bounds": [2.0, 1.0]})
    assert FedKL(c1_bounds=(2.0, 2.0)).c1_bounds == (2, 2)


# When c1 is adapted.


@pytest.fixture
def ramped(hand):
    """c1 after each iteration of a round, whose distances are given."""

    def after(algorithm, c1, distances):
        found, learner = [], LearnerSettings(iterations=len(distances))
        for i, distance in enumerate(distances):
            at = hand.at(c1=c1)._replace(learner=learner, iteration=jnp.array(i))
            measured = Measured(jnp.array(0.01), jnp.array(distance), jnp.array(1.0))
            c1 = float(algorithm.adapt(at, measured)["c1"])
            found.append(c1)
        return found

    return after


DISTANCES_OF_A_ROUND = [0.2, 0.5, 0.5, 0.7]


def test_on_a_ramp_the_target_grows_to_d_global(ramped):
    """Targets 0.15, 0.3, 0.45 and 0.6: the distances are above, above, above and above; had the
    target been 0.6 all along, below, below, below and above."""
    ramp = FedKL(d_global=0.6, c1_adapted="ramp")
    assert ramped(ramp, 0.5, DISTANCES_OF_A_ROUND) == [1, 2, 4, 8]
    # 0.15 is met, 0.25 is below 0.3 / 1.1, 0.46 near 0.45, and 0.54 below 0.6 / 1.1.
    assert ramped(ramp, 0.5, [0.15, 0.25, 0.46, 0.54]) == [0.5, 0.25, 0.25, 0.125]
    always = FedKL(d_global=0.6)
    assert ramped(always, 0.5, DISTANCES_OF_A_ROUND) == [0.25, 0.125, 0.0625, 0.125]


def test_the_last_target_of_a_ramp_is_d_global(ramped):
    ramp = FedKL(d_global=0.6, c1_adapted="ramp")
    assert ramped(ramp, 0.5, [0.6]) == [0.5]
    assert ramped(ramp, 0.5, [0.3, 0.6]) == [0.5, 0.5]


def test_c1_is_adapted_to_the_targets_of_a_schedule_that_is_registered(ramped, monkeypatch):
    monkeypatch.setattr(SCHEDULES, "_classes", dict(SCHEDULES._classes))

    @fedkl.register_schedule
    def falling(iteration, iterations, d_global):
        return d_global * (iterations - iteration)

    schedule = FedKL(d_global=0.1, c1_adapted="falling")
    # Targets 0.4, 0.3, 0.2 and 0.1, where the same distance is below, below, near and above.
    assert ramped(schedule, 0.5, [0.2] * 4) == [0.25, 0.125, 0.125, 0.25]


def test_a_ramp_may_be_capped_by_the_advantage(hand):
    algorithm = FedKL(d_global=0.6, c1_adapted="ramp", c1_cap_by_advantage=True)
    at = hand.at(c1=4.0)._replace(learner=LearnerSettings(iterations=2))
    measured = Measured(jnp.array(0.01), jnp.array(2.0), jnp.array(6.0))
    assert float(algorithm.adapt(at, measured)["c1"]) == 3  # 6 / 2, below twice 4


def test_once_a_round_c1_stays_within_it(ramped):
    assert ramped(FedKL(c1_adapted="round"), 0.5, DISTANCES_OF_A_ROUND) == [0.5] * 4


@pytest.fixture
def settled(hand):
    """c1 after a round that ended at a distance."""

    def after(algorithm, c1, distance):
        ended = hand.ended(
            coefficients={"c1": jnp.array(c1), "c2": jnp.array(7.0)},
            distance_global=jnp.array(distance),
        )
        coefficients = algorithm.adapt_after_round(ended)
        assert float(coefficients["c2"]) == 7
        return float(coefficients["c1"])

    return after


@pytest.mark.parametrize(
    ("distance", "factor"), [(0.54, 0.5), (0.546, 1), (0.6, 1), (0.659, 1), (0.661, 2)]
)
def test_once_a_round_c1_halves_and_doubles_around_d_global(settled, distance, factor):
    algorithm = FedKL(d_global=0.6, c1_adapted="round")
    assert settled(algorithm, 0.5, distance) == pytest.approx(0.5 * factor)


def test_once_a_round_c1_stays_within_its_bounds(settled):
    algorithm = FedKL(d_global=0.6, c1_adapted="round", c1_bounds=(0.1, 2.0))
    assert settled(algorithm, 0.15, 0.0) == pytest.approx(0.1)
    assert settled(algorithm, 1.5, 9.0) == 2


@pytest.mark.parametrize("rule", ["iteration", "ramp"])
def test_what_was_adapted_within_the_round_is_not_adapted_at_its_end(settled, rule):
    assert settled(FedKL(c1_adapted=rule), 0.5, 9.0) == 0.5


def test_a_cap_of_an_iteration_is_refused_where_there_is_one_adaptation_a_round():
    message = r"^algorithm\.c1_cap_by_advantage must be false where algorithm\.c1_adapted is round"
    with pytest.raises(UserError, match=message):
        FedKL(c1_adapted="round", c1_cap_by_advantage=True)
    capped = {"algorithm.c1_adapted": "round", "algorithm.c1_cap_by_advantage": True}
    with pytest.raises(UserError, match=message):
        fedkl.preset("probe-point", "fedkl", set=capped)
    with pytest.raises(UserError, match=r"algorithm\.c1_adapted must be one of iteration, ramp, r"):
        fedkl.preset("probe-point", "fedkl", set={"algorithm.c1_adapted": "never"})


def test_a_c1_that_starts_anew_is_refused_where_it_is_adapted_after_its_last_use():
    message = r"^algorithm\.c1_across_rounds must not be reset where algorithm\.c1_adapted is round"
    with pytest.raises(UserError, match=message):
        FedKL(c1_adapted="round", c1_across_rounds="reset")
    assert FedKL(c1_adapted="ramp", c1_across_rounds="reset").c1_adapted == "ramp"


def test_the_settings_are_leaves_that_compiled_code_takes():
    numbers = jax.tree.leaves(FedKL(d_global=0.5, c1=0.25, c1_bounds=(0.125, 2.0)))
    assert sorted(numbers) == [0.125, 0.25, 0.5, 2.0]
    assert eqx.tree_equal(FedKL(), FedKL())
