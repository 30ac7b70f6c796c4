"""Steps after an episode's true end, and the scale of rewards, count for nothing."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.algorithms import FedKL
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import Task
from fedkl.learning.settings import CriticSettings
from fedkl.worlds import Continuous, Transition, World

KEY = jax.random.key(5)


def same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


class ShortParams(NamedTuple):
    length: np.int32
    nonsense: np.float32
    scale: np.float32


class Short(World):
    """Ends after `length` steps, and from then on answers with `nonsense`.

    A step brings minus the size of the action, times `scale`.
    """

    name: ClassVar[str] = "short"
    observation_size: ClassVar[int] = 2
    actions: ClassVar[Continuous] = Continuous(1)
    horizon: ClassVar[int] = 6

    def clients(self, n, key):
        raise NotImplementedError

    def reset(self, params, key):
        return jnp.zeros((), int), jax.random.normal(key, (2,))

    def step(self, params, state, action, key):
        state = state + 1
        over = state >= params.length
        observation = jnp.where(over, params.nonsense, jax.random.normal(key, (2,)))
        reward = jnp.where(
            state > params.length, params.nonsense, -params.scale * jnp.abs(action[0])
        )
        return Transition(state, observation, reward, over)


@pytest.fixture(scope="module")
def short(train, start):
    critic = CriticSettings(hidden=(4,), epochs=2, minibatch=8)

    def run(length, nonsense=0.0, scale=1.0, steps=24, **numbers):
        learner = PolicyOptimisation(
            iterations=2,
            steps=steps,
            epochs=2,
            minibatch=8,
            hidden=(4,),
            c2_cap_by_advantage=True,
            guard_multiple=1e9,
            **numbers,
        )
        task = Task(Short(), FedKL(), learner, critic)
        params = ShortParams(np.int32(length), np.float32(nonsense), np.float32(scale))
        return train(task, *start(task), params, KEY)

    return run


@pytest.mark.parametrize("nonsense", [1e6, float("inf"), float("nan")])
@pytest.mark.parametrize("length", [1, 4, 6])
@pytest.mark.parametrize("collect", ["steps", "episodes"])
def test_nothing_counts_after_a_true_end(short, collect, length, nonsense):
    """Neither for weights, moments, advantages, policy nor critic: not a bit changes."""
    same_bits(short(length, collect=collect), short(length, nonsense, collect=collect))


@pytest.mark.parametrize(("length", "steps"), [(1, 8), (4, 32), (6, 48), (99, 48)])
def test_a_client_weighs_the_steps_before_its_ends(short, length, steps):
    """2 iterations of 4 episodes."""
    update, _, metrics = short(length, collect="episodes")
    assert float(update.weight) == steps
    assert float(update.model.observations.count) == float(update.model.rewards.count) == steps
    assert metrics["steps"].tolist() == [steps / 2] * 2
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(update))


@pytest.mark.parametrize("length", [1, 4, 6, 99])
def test_a_client_weighs_all_that_it_was_asked_for_if_episodes_follow_each_other(short, length):
    """2 iterations of 22 steps, which are 3 columns of 6 and one of 4."""
    update, _, metrics = short(length, steps=22)
    assert float(update.weight) == 44
    assert float(update.model.observations.count) == float(update.model.rewards.count) == 44
    assert metrics["steps"].tolist() == [22, 22]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(update))


def test_advantages_are_standardised_over_real_steps_only(short):
    """c2 ends at its cap, max advantage / KL. Of 4 standardised numbers the largest is between 1
    and sqrt(3); with 20 zeros of padding among them it would be larger."""
    settings = {"learning_rate": 0.5, "c2": 20.0, "c2_bounds": (1e-8, 20.0)}
    metrics = short(1, **settings, collect="episodes")[2]
    c2 = float(metrics["coefficients"]["c2"])
    assert c2 < 19
    assert 1 <= c2 * float(metrics["kl_local"][-1]) <= 3**0.5


def test_the_scale_of_rewards_does_not_matter_from_the_first_iteration_on(short):
    """They are divided by a deviation that knows them; a power of 2 does not even round."""
    one, large = short(4)[0].model, short(4, scale=1024.0)[0].model
    same_bits((one.policy, one.critic), (large.policy, large.critic))
    assert float(large.rewards.mean) == 1024 * float(one.rewards.mean)
