"""The local objective h_n, its gradient, and the gradient steps on it.

The values of h_n for each algorithm are worked out by hand in tests/algorithms.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from fedkl.algorithms import Algorithm, FedAvg, FedKL, FedProx
from fedkl.learning.distributions import DISTANCES
from fedkl.learning.policy import Policy, only, personal_part, without
from fedkl.learning.policy_optimisation import (
    HookInput,
    PolicyBatch,
    at_step,
    gradient_steps,
    improve_policy,
    measure,
    objective,
    optimiser,
)
from fedkl.learning.settings import ALL, PERSONAL, LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.worlds import Chain, PointTarget

KEY = jax.random.key(0)


class Policies(NamedTuple):
    """pi_{i-1} and pi^t."""

    previous: Policy
    broadcast: Policy


FREE = LearnerSettings(ratio_bounds=(0.0, jnp.inf))
WORLDS = {"gaussian": PointTarget(), "categorical": Chain()}


def a_policy(world, seed):
    settings = LearnerSettings(hidden=(), output_scale=1.0, initial_log_std=0.1 * seed)
    policy = Policy(world, settings, jax.random.key(seed))
    return jax.tree.map(lambda x: x + 0.05 * seed, policy)


def an_iteration(policies, batch, number=0, learner=FREE, **coefficients):
    """Of an algorithm that keeps and shares nothing."""
    return HookInput(
        learner=learner,
        coefficients={name: jnp.asarray(value) for name, value in coefficients.items()},
        client_state=(),
        server_state=(),
        prepared=(),
        policy=policies.previous,
        actions=policies.previous.distribution(batch.previous),
        previous_policy=policies.previous,
        global_policy=policies.broadcast,
        global_actions=policies.broadcast.distribution(batch.broadcast),
        personal=None,
        batch=batch,
        statistics=None,
        broadcast_statistics=None,
        seen=None,
        iteration=jnp.array(number),
        step=jnp.array(0),
        key=KEY,
    )


def h_of(algorithm, policy, policies, batch, learner=FREE, **coefficients):
    now = an_iteration(policies, batch, learner=learner, **coefficients)
    return objective(algorithm, at_step(now, policy, batch, 0))


def measured_at(policy, policies, batch):
    return measure(FedKL(), at_step(an_iteration(policies, batch), policy, batch, 0))


def a_batch(world, policies, samples=8):
    states = jax.random.normal(KEY, (samples, world.observation_size))
    before = policies.previous(states)
    action = before.sample(KEY)
    return PolicyBatch(
        observation=states,
        action=action,
        advantage=jnp.linspace(-2.0, 1.0, samples),
        log_prob=before.log_prob(action),
        previous=before.mean if isinstance(world, PointTarget) else before.logits,
        broadcast=policies.broadcast.network(states),
        weight=jnp.ones(samples).at[-1].set(0.0),
    )


@pytest.fixture(scope="module", params=WORLDS)
def case(request):
    """Three different policies, and data of the second."""
    world = WORLDS[request.param]
    now, previous, broadcast = (a_policy(world, seed) for seed in (1, 2, 3))
    policies = Policies(previous, broadcast)
    return now, policies, a_batch(world, policies)


def test_the_gradient_is_that_of_finite_differences(case):
    """In float64, for FedKL with every distance, FedProx and FedAvg."""
    algorithms = {name: FedKL(distance=name) for name in DISTANCES}
    algorithms |= {"fedprox": FedProx(mu=0.7), "fedavg": FedAvg()}
    with jax.enable_x64(True):
        now, policies, batch = jax.tree.map(
            lambda x: jnp.asarray(x, x.dtype if jnp.issubdtype(x.dtype, jnp.integer) else float),
            case,
        )
        parameters, policy_from = ravel_pytree(now)

        @jax.jit
        @jax.value_and_grad
        def h(parameters, algorithm):
            return h_of(algorithm, policy_from(parameters), policies, batch, c1=0.8, c2=1.3)

        for name, algorithm in algorithms.items():
            exact = h(parameters, algorithm)[1]
            assert np.abs(exact).max() > 1e-2
            differences = [
                (h(parameters + axis, algorithm)[0] - h(parameters - axis, algorithm)[0]) / 2e-6
                for axis in 1e-6 * np.eye(len(parameters))
            ]
            np.testing.assert_allclose(exact, differences, rtol=1e-6, atol=1e-7, err_msg=name)


def test_at_the_policy_that_collected_the_data_h_is_the_mean_advantage(case):
    _, policies, batch = case
    h = h_of(FedAvg(), policies.previous, policies, batch, c2=5.0)
    assert float(h) == pytest.approx(float(batch.advantage[:-1].mean()), rel=1e-5)


def test_the_importance_ratio_is_clipped_to_its_bounds(case):
    now, _, batch = case
    exact = np.exp(now(batch.observation).log_prob(batch.action) - batch.log_prob)[:-1]
    assert exact.min() < 0.95
    assert exact.max() > 1.1
    h = h_of(FedAvg(), *case, LearnerSettings(ratio_bounds=(0.95, 1.1)), c2=0.0)
    expected = (np.clip(exact, 0.95, 1.1) * np.asarray(batch.advantage)[:-1]).mean()
    assert float(h) == pytest.approx(expected, rel=1e-5)


def test_padding_counts_for_nothing(case):
    now, policies, batch = case
    absurd = batch._replace(
        observation=batch.observation.at[-1].set(50.0),
        advantage=batch.advantage.at[-1].set(1e6),
        log_prob=batch.log_prob.at[-1].set(-20.0),
        previous=batch.previous.at[-1].set(9.0),
        broadcast=batch.broadcast.at[-1].set(-9.0),
    )
    one, other = (h_of(FedKL(), now, policies, b, c1=1.0, c2=1.0) for b in (batch, absurd))
    assert float(one) == pytest.approx(float(other), rel=1e-6)
    one, other = (measured_at(now, policies, b) for b in (batch, absurd))
    assert float(one.kl_local) == pytest.approx(float(other.kl_local), rel=1e-6)
    assert float(one.distance_global) == pytest.approx(float(other.distance_global), rel=1e-6)


def test_measures_from_the_old_policies_to_the_new(case):
    now, policies, batch = case
    measured = measured_at(now, policies, batch)
    real = batch.observation[:-1]
    kl_local = policies.previous(real).kl(now(real)).mean()
    distance = jnp.sqrt(policies.broadcast(real).kl(now(real)) / 2).mean()
    assert float(measured.kl_local) == pytest.approx(float(kl_local), rel=1e-5)
    assert float(measured.distance_global) == pytest.approx(float(distance), rel=1e-5)
    assert float(measured.max_advantage) == 2


def step_of(learner, gradient):
    """What the optimiser adds to the parameters for the first gradient."""
    rule = optimiser(learner)
    return rule.update(gradient, rule.init(gradient), gradient)[0]


def test_plain_sgd_goes_against_the_gradient():
    learner = LearnerSettings(learning_rate=0.1, optimiser="sgd")
    np.testing.assert_allclose(step_of(learner, jnp.array([3.0, -4.0])), [-0.3, 0.4], rtol=1e-6)


def test_the_first_step_of_adam_has_the_learning_rates_length():
    learner = LearnerSettings(learning_rate=0.1, optimiser="adam")
    np.testing.assert_allclose(step_of(learner, jnp.array([3.0, -4e-3])), [-0.1, 0.1], rtol=1e-4)


@pytest.mark.parametrize(("limit", "step"), [(1.0, [-0.06, 0.08]), (6.0, [-0.3, 0.4])])
def test_gradients_longer_than_the_limit_are_shortened_to_it(limit, step):
    learner = LearnerSettings(learning_rate=0.1, max_gradient_norm=limit)
    np.testing.assert_allclose(step_of(learner, jnp.array([3.0, -4.0])), step, rtol=1e-5)


class Numbered(Algorithm):
    """Replaces every gradient by the number of its step in the round."""

    name = "numbered"
    summary = "for this test"

    def gradient(self, gradient, at):
        return jax.tree.map(lambda g: 0 * g + at.step, gradient)


improve = jax.jit(improve_policy)


def improved(algorithm, learner, policies, batch, scale=1.0, iteration=0, c2=0.0):
    state = optimiser(learner).init(policies.previous)
    now = an_iteration(policies, batch, iteration, learner, c1=0.5, c2=c2)
    return improve(algorithm, now, state, jnp.asarray(scale), KEY)[0]


@pytest.fixture(scope="module")
def small():
    world = PointTarget()
    policies = Policies(a_policy(world, 1), a_policy(world, 2))
    learner = LearnerSettings(epochs=3, minibatch=4, learning_rate=0.01)
    return learner, policies, a_batch(world, policies, samples=10)


@pytest.mark.parametrize(("iteration", "total"), [(0, 15), (2, 2 * 6 * 6 + 15)])
def test_gradient_steps_are_numbered_through_the_round(small, iteration, total):
    """3 epochs of 10 // 4 steps: 0 .. 5 in the first iteration, 12 .. 17 in the third."""
    learner, policies, batch = small
    assert gradient_steps(learner, batch) == 6
    after = improved(Numbered(), learner, policies, batch, iteration=iteration)
    moved = jax.tree.map(jnp.subtract, policies.previous, after)
    for leaf in jax.tree.leaves(moved):
        np.testing.assert_allclose(leaf, 0.01 * total, rtol=1e-4)


@pytest.mark.parametrize(("iteration", "shared_moves"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("which", [one for one in PERSONAL[1:] if one != ALL])
def test_the_personal_part_is_trained_first(small, which, iteration, shared_moves):
    learner, policies, batch = small
    learner = dataclasses.replace(learner, personal_iterations=2)
    own = personal_part(policies.previous, which)
    state = optimiser(learner).init(policies.previous)
    now = an_iteration(policies, batch, iteration, learner, c1=0.5, c2=0.0)._replace(personal=own)
    after = improve(FedKL(), now, state, jnp.asarray(1.0), KEY)[0]
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), after, policies.previous)
    assert all(jax.tree.leaves(only(moved, own)))
    assert set(jax.tree.leaves(without(moved, own))) == {shared_moves}


def test_one_full_batch_step_is_gradient_ascent_on_h(small):
    _, policies, batch = small
    learner = LearnerSettings(epochs=1, minibatch=10, learning_rate=0.01)
    after = improved(FedKL(), learner, policies, batch, scale=0.5, c2=2.0)
    gradient = jax.jit(jax.grad(lambda p: h_of(FedKL(), p, policies, batch, c1=0.5, c2=2.0)))(
        policies.previous
    )
    expected = optax.apply_updates(
        policies.previous, jax.tree.map(lambda g: 0.5 * 0.01 * g, gradient)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), after, expected)


def test_the_local_penalty_shortens_the_way(small):
    learner, policies, batch = small
    ways = [
        measured_at(improved(FedKL(), learner, policies, batch, c2=c2), policies, batch)
        for c2 in (0.0, 20.0)
    ]
    assert float(ways[1].kl_local) < 0.7 * float(ways[0].kl_local)


class Told(Algorithm):
    """A penalty whose gradient, with respect to the log deviation, is a thousandth of what the hook
    is told."""

    name = "told"
    summary = "for this test"

    def penalty(self, at):
        told = at.step + 10 * at.iteration + 100 * at.client_state["n"] + 1000 * at.server_state
        told += 10_000 * at.statistics.mean[0] + 100_000 * at.prepared
        return 1e-3 * told * at.learner.epochs * jnp.sum(at.policy.log_std)


def test_penalties_are_told_where_in_the_round_they_are_and_what_is_kept_shared_and_prepared(small):
    """Without advantages and c2 nothing else pulls. Six steps, from 12 to 17, of iteration 2."""
    learner, policies, batch = small
    idle = batch._replace(advantage=jnp.zeros(10))
    now = an_iteration(policies, idle, 2, learner, c2=0.0)._replace(
        client_state={"n": jnp.array(3.0)},
        server_state=jnp.array(4.0),
        statistics=Moments(jnp.array(1.0), jnp.array([0.5]), jnp.array([0.0])),
        prepared=jnp.array(0.25),
    )
    state = optimiser(learner).init(policies.previous)
    after = improve(Told(), now, state, jnp.array(1.0), KEY)[0]
    told = (12 + 13 + 14 + 15 + 16 + 17) + 6 * (10 * 2 + 100 * 3 + 1000 * 4 + 10_000 * 0.5)
    told = 3 * (told + 6 * 100_000 * 0.25)  # of 3 epochs
    moved = policies.previous.log_std[0] - after.log_std[0]
    assert float(moved) == pytest.approx(0.01 * 1e-3 * told, rel=1e-4)
    np.testing.assert_array_equal(after.network.biases[0], policies.previous.network.biases[0])


def test_every_step_of_every_iteration_looks_with_another_key(small):
    _, policies, batch = small
    now = an_iteration(policies, batch, 2)
    keys = [at_step(now, policies.previous, batch, step).key for step in (4, 5)]
    assert not np.array_equal(*(jax.random.key_data(key) for key in keys))


def test_hooks_are_shown_both_policies_on_the_states_of_the_batch(small):
    _, policies, batch = small
    now = a_policy(PointTarget(), 3)
    at = at_step(an_iteration(policies, batch, 1, c2=2.0), now, batch, 7)
    assert at.policy is now
    assert at.global_policy is policies.broadcast
    np.testing.assert_array_equal(at.actions.mean, now(batch.observation).mean)
    np.testing.assert_allclose(
        at.global_actions.mean, policies.broadcast(batch.observation).mean, rtol=1e-6
    )
    assert (int(at.iteration), int(at.step), float(at.coefficients["c2"])) == (1, 7, 2)
    assert at.batch is batch


def test_an_entropy_bonus_adds_its_share_of_the_mean_entropy(case):
    now, policies, batch = case
    plain = h_of(FedAvg(), now, policies, batch, c2=1.3)
    bonus = LearnerSettings(entropy_bonus=0.25)
    with_it = h_of(FedAvg(), now, policies, batch, bonus, c2=1.3)
    entropy = now(batch.observation[:-1]).entropy().mean()  # the last is padding
    assert float(with_it - plain) == pytest.approx(0.25 * float(entropy), rel=1e-4)


def test_the_gradient_of_an_entropy_bonus_is_the_one_by_hand(case):
    """Of a Gaussian it is the bonus for each log deviation, and 0 for the network; of a categorical
    with logits z it is -p (log p + H) for each of them, and so for the bias of a linear policy."""
    now, policies, batch = case

    def slope(learner):
        return jax.grad(lambda p: h_of(FedAvg(), p, policies, batch, learner, c2=1.3))(now)

    bonus = jax.tree.map(jnp.subtract, slope(LearnerSettings(entropy_bonus=0.25)), slope(FREE))
    bias = bonus.network.biases[-1]
    if now.log_std is not None:
        np.testing.assert_allclose(bonus.log_std, np.full(bias.shape, 0.25), rtol=1e-4)
        np.testing.assert_allclose(bias, np.zeros(bias.shape), atol=1e-6)
        return
    logits = np.asarray(now.network(batch.observation[:-1]), np.float64)
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    entropy = -(p * np.log(p)).sum(axis=-1, keepdims=True)
    by_hand = 0.25 * (-p * (np.log(p) + entropy)).mean(axis=0)
    np.testing.assert_allclose(bias, by_hand, atol=1e-6)


def test_without_a_bonus_no_entropy_is_computed(case, monkeypatch):
    def refuse(self):
        raise AssertionError("the entropy was computed")

    monkeypatch.setattr(type(case[0](case[2].observation)), "entropy", refuse)
    h_of(FedAvg(), *case, LearnerSettings(entropy_bonus=0.0), c2=1.0)
    with pytest.raises(AssertionError, match="entropy"):
        h_of(FedAvg(), *case, LearnerSettings(entropy_bonus=0.1), c2=1.0)
