"""What is logged of an iteration, against numbers by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedkl.algorithms import FedAvg, FedKL
from fedkl.learning.critic import CriticBatch
from fedkl.learning.diagnostics import DIAGNOSTICS, diagnose
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import HookInput, PolicyBatch, at_step, objective
from fedkl.learning.settings import LearnerSettings
from fedkl.worlds import Chain, PointTarget

KEY = jax.random.key(0)
SAMPLES = 9
LEARNER = LearnerSettings(hidden=(), minibatch=4, output_scale=1.0)


def an_iteration(world, learner=LEARNER):
    """The start of an iteration whose last sample is padding, and its end at another policy."""
    previous, improved = (Policy(world, learner, jax.random.key(n)) for n in (1, 2))
    states = jax.random.normal(KEY, (SAMPLES, world.observation_size))
    outputs = previous.network(states)
    actions = previous.distribution(outputs)
    action = actions.sample(KEY)
    batch = PolicyBatch(
        observation=states,
        action=action,
        advantage=jnp.linspace(-1.0, 2.0, SAMPLES),
        log_prob=actions.log_prob(action),
        previous=outputs,
        broadcast=outputs,
        weight=jnp.ones(SAMPLES).at[-1].set(0.0),
    )
    now = HookInput(
        learner=learner,
        coefficients={"c1": jnp.array(0.5), "c2": jnp.array(2.0)},
        client_state=(),
        server_state=(),
        prepared=(),
        policy=previous,
        actions=actions,
        previous_policy=previous,
        global_policy=previous,
        global_actions=actions,
        personal=None,
        batch=batch,
        statistics=None,
        broadcast_statistics=None,
        seen=None,
        iteration=jnp.array(0),
        step=jnp.array(0),
        key=KEY,
    )
    return now, at_step(now, improved, batch, 2)


VALUE = jnp.array([1.0, 1.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0, 50.0])
TARGET = jnp.array([2.0, 1.0, 2.0, 7.0, 0.0, 0.0, 0.0, 0.0, -9.0])


def targets(target=TARGET):
    return CriticBatch(jnp.zeros((SAMPLES, 1)), target, jnp.ones(SAMPLES).at[-1].set(0.0))


def found(world=None, learner=LEARNER, target=TARGET, algorithm=None):
    return diagnose(
        algorithm or FedAvg(),
        *an_iteration(world or PointTarget(), learner),
        VALUE,
        targets(target),
    )


def test_all_of_them_are_numbers():
    diagnostics = found()
    assert tuple(diagnostics) == DIAGNOSTICS
    assert all(x.shape == () and np.isfinite(x) for x in diagnostics.values())


def test_the_critics_are_those_of_its_errors_by_hand():
    """Errors 1 and 3 among eight: mean 1/2, squares 10/8. Targets 2, 1, 2, 7: mean 12/8, squares
    58/8."""
    diagnostics = found()
    assert float(diagnostics["value_loss"]) == pytest.approx(10 / 8)
    left, all_of_it = 10 / 8 - 0.5**2, 58 / 8 - 1.5**2
    assert float(diagnostics["explained_variance"]) == pytest.approx(1 - left / all_of_it)


def test_of_equal_targets_no_variance_is_explained():
    assert np.isnan(found(target=jnp.full(SAMPLES, 3.0))["explained_variance"])


def test_a_number_that_no_log_should_hold_is_not_told():
    diagnostics = found(target=TARGET * 1e9)
    assert np.isnan(diagnostics["value_loss"])  # its square is beyond 1e15
    assert np.isfinite(diagnostics["entropy"])


def test_the_entropy_is_that_of_the_new_policy_where_steps_count():
    _, at = an_iteration(Chain())
    logits = np.asarray(at.policy.network(at.batch.observation[:-1]), np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    entropy = -(p * np.log(p)).sum(axis=-1).mean()
    assert float(found(Chain())["entropy"]) == pytest.approx(entropy, rel=1e-5)


def test_the_gradient_is_that_of_h_on_every_second_sample():
    now, at = an_iteration(PointTarget())
    part = jax.tree.map(lambda x: x[jnp.array([0, 2, 4, 6])], now.batch)

    def h(policy):
        return objective(FedKL(), at_step(now, policy, part, 2))

    by_hand = np.linalg.norm(ravel_pytree(jax.grad(h)(at.policy))[0])
    diagnostics = found(algorithm=FedKL())
    assert float(diagnostics["gradient_norm"]) == pytest.approx(float(by_hand), rel=1e-5)


def test_the_share_that_is_clipped_is_that_of_the_ratios_outside_of_their_bounds():
    _, at = an_iteration(PointTarget())
    ratio = np.exp(np.asarray(at.actions.log_prob(at.batch.action) - at.batch.log_prob))[:-1]
    low, high = np.sort(ratio)[[1, 5]] + np.float32(1e-5)
    clipped = replace(LEARNER, ratio_bounds=(float(low), float(high)))
    # Two are below (the second is the bound, but for 1e-5), and of eight the last two are above.
    assert float(found(learner=clipped)["clip_fraction"]) == pytest.approx(4 / 8)
    assert float(found()["clip_fraction"]) == 0
