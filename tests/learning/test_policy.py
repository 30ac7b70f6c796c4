"""What a policy makes of observations, for both kinds of actions."""

import jax
import jax.numpy as jnp
import numpy as np

from fedkl.learning.distributions import Categorical, Gaussian
from fedkl.learning.policy import Policy
from fedkl.learning.settings import LearnerSettings
from fedkl.worlds import Chain, PointTarget

KEY = jax.random.key(0)


def test_continuous_actions_get_a_gaussian_whose_deviation_is_the_same_in_all_states():
    policy = Policy(PointTarget(), LearnerSettings(hidden=(3,), initial_log_std=-0.5), KEY)
    actions = policy(jnp.array([[1.0], [2.0]]))
    assert isinstance(actions, Gaussian)
    assert actions.mean.shape == (2, 1)
    np.testing.assert_array_equal(actions.log_std, [-0.5])


def test_discrete_actions_get_a_categorical():
    policy = Policy(Chain(), LearnerSettings(hidden=(3,)), KEY)
    actions = policy(jnp.eye(5))
    assert isinstance(actions, Categorical)
    assert actions.logits.shape == (5, 2)
    assert policy.log_std is None


def test_output_scale_zero_makes_the_first_policy_uniform():
    policy = Policy(Chain(), LearnerSettings(hidden=(3,), output_scale=0.0), KEY)
    np.testing.assert_allclose(jnp.exp(policy(jnp.eye(5)).log_prob(jnp.ones(5, int))), 0.5)


def test_a_network_output_stands_for_the_same_distribution():
    policy = Policy(PointTarget(), LearnerSettings(hidden=(3,)), KEY)
    x = jnp.array([[0.3]])
    again = policy.distribution(policy.network(x))
    np.testing.assert_array_equal(again.mean, policy(x).mean)
