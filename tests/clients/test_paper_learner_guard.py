"""The guard: an iteration that leaves the trust region counts for nothing."""

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.worlds.probes import PointParams

KEY = jax.random.key(5)
PARAMS = PointParams(np.float32(0.5))
ABSURD = [1e4, 1e20, float("inf")]  # the last two end in NaN


def same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("learning_rate", ABSURD)
def test_absurd_steps_are_rolled_back(train, start, point, learning_rate):
    task = point(learning_rate=learning_rate)
    model, client = start(task)
    update, after, metrics = train(task, model, client, PARAMS, KEY)
    same_bits(update.model.policy, model.policy)
    same_bits(after.coefficients, client.coefficients)
    assert metrics["guarded"].tolist() == [True] * 3
    assert float(after.step_scale) == 1 / 8


def test_what_was_seen_in_a_rolled_back_iteration_still_counts(train, start, point):
    task = point(learning_rate=1e20)
    model, client = start(task)
    update, after, _ = train(task, model, client, PARAMS, KEY)
    assert float(update.weight) == float(update.model.observations.count) == 192
    assert int(after.iterations) == 3
    assert not np.array_equal(update.model.critic.weights[0], model.critic.weights[0])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((update, after)))


def test_the_trust_region_ends_at_a_multiple_of_d_local(train, start, point):
    """Over a range of step sizes, an iteration is guarded if and only if its KL is beyond it."""
    guarded, divergences = [], []
    for exponent in range(-4, 3):
        task = point(learning_rate=0.1 * 2.0**exponent, d_local=0.02, guard_multiple=2.5)
        metrics = train(task, *start(task), PARAMS, KEY)[2]
        guarded += metrics["guarded"].tolist()
        divergences += metrics["kl_local"].tolist()
    assert guarded == [not kl <= 0.05 for kl in divergences]
    assert len(set(guarded)) == 2
    # Some iterations above the target but inside the region are kept.
    assert any(0.022 < kl <= 0.05 for kl in divergences)


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.5 * 1.1**3), (0.9, 1.0), (1.0, 1.0)])
def test_the_step_scale_recovers_by_a_tenth_an_iteration(train, start, point, before, after):
    task = point(learning_rate=1e-4)
    model, client = start(task)
    client = eqx.tree_at(lambda c: c.step_scale, client, np.float32(before))
    _, end, metrics = train(task, model, client, PARAMS, KEY)
    assert not metrics["guarded"].any()
    assert float(end.step_scale) == pytest.approx(after)


@pytest.mark.parametrize("before", [0.0, 1e-45, 2.0**-20])
@pytest.mark.parametrize("learning_rate", [1e-4, 1e20])
def test_no_step_scale_is_too_small_to_recover(train, start, point, before, learning_rate):
    task = point(learning_rate=learning_rate)
    model, client = start(task)
    client = eqx.tree_at(lambda c: c.step_scale, client, np.float32(before))
    _, end, metrics = train(task, model, client, PARAMS, KEY)
    assert bool(metrics["guarded"][-1]) == (learning_rate == 1e20)
    assert float(end.step_scale) >= 2.0**-20


def test_the_step_scale_is_a_factor_on_the_learning_rate(train, start, point):
    task, halved = point(learning_rate=0.004), point(learning_rate=0.002)
    model, client = start(task)
    scaled = eqx.tree_at(lambda c: c.step_scale, client, np.float32(0.5))
    # Compared after the first iteration only, as the scale grows later.
    one = train(task, model, scaled, PARAMS, KEY)[2]["kl_local"][0]
    other = train(halved, model, client, PARAMS, KEY)[2]["kl_local"][0]
    assert float(one) == pytest.approx(float(other), rel=1e-3)


def test_a_client_recovers_and_goes_on(train, start, point):
    """After absurd rounds the halved steps are small enough to count again."""
    task = point(learning_rate=20.0)
    model, client = start(task)
    counts = []
    for t in range(6):
        update, client, metrics = train(task, model, client, PARAMS, jax.random.fold_in(KEY, t))
        counts.append(int(metrics["guarded"].sum()))
    assert counts[0] == 3
    assert counts[-1] < 3
    assert not np.array_equal(update.model.policy.log_std, model.policy.log_std)
