"""Advantages and targets of an episode, by hand."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.learning.advantage import batches
from fedkl.learning.policy import MLP, Policy
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.learning.trajectories import Trajectories
from fedkl.worlds import PointTarget

KEY = jax.random.key(0)
LEARNER = LearnerSettings(
    hidden=(),
    discount=0.5,
    gae_lambda=0.5,
    bootstrap_truncation=False,
    standardise_advantages=False,
    collect="episodes",
)


class Settings(eqx.Module):
    """Whatever holds the settings of local training."""

    learner: LearnerSettings
    critic: CriticSettings


def linear(*weights, bias):
    """A critic without hidden layers."""
    made = MLP((len(weights), 1), KEY)
    numbers = ((jnp.array(weights)[:, None],), (jnp.array([bias]),))
    return eqx.tree_at(lambda n: (n.weights, n.biases), made, numbers)


def an_episode(terminated_at=None):
    """Three steps with observations 1, 2, 4 and 8 after them, and rewards 1, 2, 3."""
    step = jnp.arange(3)[:, None]
    ended = step == (3 if terminated_at is None else terminated_at)
    return Trajectories(
        observation=jnp.array([1.0, 2.0, 4.0])[:, None, None],
        action=jnp.zeros((3, 1, 1)),
        reward=jnp.array([[1.0], [2.0], [3.0]]),
        terminated=ended,
        mask=step <= (3 if terminated_at is None else terminated_at),
        last_observation=jnp.array([[8.0]]),
    )


def learnt(critic, value_net, data, learner=LEARNER):
    policy = Policy(PointTarget(), learner, KEY)
    task = Settings(learner, critic)
    found = batches(task.learner, task.critic, policy, policy, value_net, None, data, data.reward)
    return found[:2]


def test_states_are_alike_unless_they_are_discounted():
    """With a discount of one half, three steps of an episode weigh 1, 1/2 and 1/4."""
    critic, value_net = CriticSettings(hidden=()), linear(1.0, bias=0.0)
    policy, fitted = learnt(critic, value_net, an_episode())
    assert policy.weight.tolist() == fitted.weight.tolist() == [1, 1, 1]
    discounted = replace(LEARNER, discounted_states=True)
    policy, fitted = learnt(critic, value_net, an_episode(), discounted)
    assert policy.weight.tolist() == [1, 0.5, 0.25]
    assert fitted.weight.tolist() == [1, 1, 1]
    policy, _ = learnt(critic, value_net, an_episode(terminated_at=1), discounted)
    assert policy.weight.tolist() == [1, 0.5, 0]


TOLD = {
    # Time left is 1, 1/3 and -1/3, and values are observation + 3 * time: 4, 3 and 3, then 0.
    # delta = 1 + 3/2 - 4, 2 + 3/2 - 3, 3 + 0 - 3 = -1.5, 0.5, 0; advantages fold in a quarter each.
    "gae": ([-1.5 + 0.125, 0.5, 0.0], [4 - 1.375, 3.5, 3.0]),
    # Discounted returns: 3, 2 + 3/2, 1 + 3.5/2.
    "returns": ([-1.5 + 0.125, 0.5, 0.0], [2.75, 3.5, 3.0]),
}


@pytest.mark.parametrize("targets", TOLD)
def test_after_the_limit_nothing_comes_for_a_critic_that_sees_it_coming(targets):
    settings = CriticSettings(hidden=(), sees_time=True, targets=targets)
    policy_batch, critic_batch = learnt(settings, linear(1.0, 3.0, bias=0.0), an_episode())
    advantages, values = TOLD[targets]
    np.testing.assert_allclose(policy_batch.advantage, advantages, atol=1e-6)
    np.testing.assert_allclose(critic_batch.target, values, atol=1e-6)
    np.testing.assert_allclose(
        critic_batch.observation, [[1, 1], [2, 1 / 3], [4, -1 / 3]], rtol=1e-6
    )
    # The policy is not told.
    np.testing.assert_array_equal(policy_batch.observation, [[1], [2], [4]])


def test_a_critic_that_is_not_told_sees_the_observation_alone():
    """The same values by state, 4, 3 and 3, come of no function of it; 2 everywhere does."""
    policy_batch, critic_batch = learnt(
        CriticSettings(hidden=()), linear(0.0, bias=2.0), an_episode()
    )
    # delta = 1 + 1 - 2, 2 + 1 - 2, 3 - 2
    np.testing.assert_allclose(policy_batch.advantage, [0 + 1.25 / 4, 1.25, 1], rtol=1e-6)
    np.testing.assert_array_equal(critic_batch.observation, [[1], [2], [4]])


def test_a_true_end_before_the_limit_is_the_end_for_who_sees_the_time_too():
    settings = CriticSettings(hidden=(), sees_time=True)
    policy_batch, critic_batch = learnt(settings, linear(1.0, 3.0, bias=0.0), an_episode(1))
    # delta = 1 + 3/2 - 4, 2 - 3; the third step is padding.
    np.testing.assert_allclose(policy_batch.advantage, [-1.5 - 0.25, -1, 0], rtol=1e-6)
    assert critic_batch.weight.tolist() == [1, 1, 0]


def test_who_cannot_see_the_time_may_look_beyond_the_limit():
    learner = LearnerSettings(hidden=(), discount=0.5, gae_lambda=0.5, standardise_advantages=False)
    policy_batch, _ = learnt(
        CriticSettings(hidden=()), linear(1.0, bias=0.0), an_episode(), learner
    )
    # values 1, 2, 4 and 8: delta = 1 + 1 - 1, 2 + 2 - 2, 3 + 4 - 4
    np.testing.assert_allclose(policy_batch.advantage, [1 + 2.75 / 4, 2.75, 3], rtol=1e-6)


# Exactly T steps: what an estimate takes after a true end, a time limit, and a cut.

STEPS = LearnerSettings(
    hidden=(), steps=5, discount=0.5, gae_lambda=0.5, standardise_advantages=False
)
"""Of two columns of three, the second is cut after its second step."""
CRITIC = CriticSettings(hidden=())
VALUE = linear(1.0, bias=0.0)
"""Worth what is observed."""


def two_columns(terminated=(), truncated=()):
    """Observations 1, 2, 4 and 8 after them, in both; rewards 1, 2, 3. After a truncated step the
    world shows 16."""
    column = jnp.array([1.0, 2.0, 4.0])
    ends = jnp.zeros((3, 2), bool)
    cut_off = ends.at[tuple(zip(*truncated, strict=True))].set(True) if truncated else None
    return Trajectories(
        observation=jnp.stack([column, column], axis=1)[..., None],
        action=jnp.zeros((3, 2, 1)),
        reward=jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
        terminated=ends.at[tuple(zip(*terminated, strict=True))].set(True) if terminated else ends,
        mask=jnp.ones((3, 2), bool).at[2, 1].set(False),
        last_observation=jnp.array([[8.0], [4.0]]),
        truncated=cut_off,
        after=None if cut_off is None else jnp.where(cut_off[..., None], 16.0, 0.0),
    )


def advantages_of(data, **changes):
    batch, for_critic = learnt(CRITIC, VALUE, data, replace(STEPS, **changes))
    assert batch.weight.tolist() == for_critic.weight.tolist() == [1] * 5
    assert batch.observation[:, 0].tolist() == [1, 2, 4, 1, 2]
    return batch.advantage.tolist()


def test_a_cut_is_worth_what_would_have_come():
    """delta = 1 + 1 - 1, 2 + 2 - 2, and 3 + 8/2 - 4 at the limit; a quarter of the later one."""
    first = [1 + 2.75 / 4, 2.75, 3]
    # The second column ends with its second step: delta = 1 + 1 - 1, 2 + 4/2 - 2.
    assert advantages_of(two_columns()) == [*first, 1.5, 2]


def test_without_a_value_after_the_limit_a_cut_still_has_one():
    """At the limit 3 + 0 - 4."""
    first = [1 + 1.75 / 4, 1.75, -1]
    assert advantages_of(two_columns(), bootstrap_truncation=False) == [*first, 1.5, 2]


@pytest.mark.parametrize("bootstrap_truncation", [True, False])
def test_a_true_end_is_worth_nothing_and_what_follows_it_is_cut_at_the_end(bootstrap_truncation):
    """An end after one step, delta = 1 - 1; then an episode that never reaches the limit."""
    found = advantages_of(two_columns([(0, 0)]), bootstrap_truncation=bootstrap_truncation)
    assert found == [0, 2 + 3 / 4, 3, 1.5, 2]


@pytest.mark.parametrize(("bootstrap_truncation", "worth"), [(True, 16 / 2), (False, 0)])
def test_a_limit_of_the_worlds_own_is_worth_what_was_seen_after_it(bootstrap_truncation, worth):
    """Not what the next episode begins with."""
    data = two_columns(truncated=[(0, 0)])
    found = advantages_of(data, bootstrap_truncation=bootstrap_truncation)
    assert found == [1 + worth - 1, 2 + 3 / 4, 3, 1.5, 2]


def test_an_end_with_the_last_step_that_counts_is_an_end():
    assert advantages_of(two_columns([(1, 1)])) == [1 + 2.75 / 4, 2.75, 3, 1 + 0 / 4, 0]


def test_who_sees_the_time_sees_that_of_the_episode():
    """After an end the time is whole again; after the cut two thirds of it are left, so 1/3."""
    learner = replace(STEPS, bootstrap_truncation=False)
    told = CriticSettings(hidden=(), sees_time=True)
    data = two_columns([(0, 0)])
    batch, for_critic = learnt(told, linear(0.0, 3.0, bias=0.0), data, learner)
    np.testing.assert_allclose(for_critic.observation[:, 1], [1, 1, 1 / 3, 1, 1 / 3], rtol=1e-6)
    # Values 3, 3, 1 and -1 where it is cut (two steps of its episode are over), and 3, 1, -1.
    first = [1 - 3, 2 + 0.5 - 3 + (3 - 0.5 - 1) / 4, 3 - 0.5 - 1]
    second = [1 + 0.5 - 3 + (2 - 0.5 - 1) / 4, 2 - 0.5 - 1]
    np.testing.assert_allclose(batch.advantage, [*first, *second], rtol=1e-6)


def test_who_waits_for_the_others_sees_the_time_of_the_last_episode():
    """An agent that leaves after three steps, waits for one, and is cut after two of the next."""
    wait, ends = jnp.arange(6)[:, None] == 3, jnp.arange(6)[:, None] == 2
    nothing = jnp.zeros((6, 1, 1))
    data = Trajectories(nothing, nothing, jnp.ones((6, 1)), ends, ~wait, jnp.zeros((1, 1)))
    learner = replace(STEPS, steps=6, bootstrap_truncation=False)
    told = CriticSettings(hidden=(), sees_time=True)
    batch, _ = learnt(told, linear(0.0, 3.0, bias=0.0), data, learner)
    # Values 3, 2, 1 of the first episode; 3, 2 of the second, and 1 where it is cut.
    first = [1 + 2 / 2 - 3 - 0.5 / 4, 1 + 1 / 2 - 2, 1 - 1]
    second = [1 + 2 / 2 - 3 - 0.5 / 4, 1 + 1 / 2 - 2]
    assert batch.weight.tolist() == [1, 1, 1, 0, 1, 1]
    np.testing.assert_allclose(batch.advantage[batch.weight > 0], [*first, *second], atol=1e-6)
