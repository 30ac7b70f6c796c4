"""CartPole beside Gymnasium's."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedkl.worlds import CartPole
from fedkl.worlds.classic import CartPoleParams
from fedkl.worlds.classic.cartpole import ANGLE_LIMIT, POSITION_LIMIT

WORLD = CartPole()
RNG = np.random.default_rng(0)


def environment(params):
    """Gymnasium's, with these physics; it does not see by itself that a mass has changed."""
    env = gym.make("CartPole-v1").unwrapped
    for name in ("gravity", "masscart", "masspole", "length", "force_mag"):
        setattr(env, name, getattr(params, name))
    env.total_mass = env.masscart + env.masspole
    env.polemass_length = env.masspole * env.length
    return env


def test_horizon_limits_and_physics_are_gymnasiums():
    env = gym.make("CartPole-v1")
    assert env.spec.max_episode_steps == WORLD.horizon
    assert (env.unwrapped.x_threshold, env.unwrapped.theta_threshold_radians) == pytest.approx(
        (POSITION_LIMIT, ANGLE_LIMIT), rel=1e-15
    )
    nominal = CartPoleParams()
    for name in ("gravity", "masscart", "masspole", "length", "force_mag"):
        assert getattr(env.unwrapped, name) == getattr(nominal, name)


def test_episodes_equal_gymnasiums_up_to_their_true_ends(assert_equal_steps):
    starts = RNG.uniform(-0.05, 0.05, (100, 4))
    actions = RNG.integers(0, 2, (100, 200))
    _, ends = assert_equal_steps(
        WORLD, CartPoleParams(), environment(CartPoleParams()), starts, actions
    )
    assert ends.sum() == 100


def test_steps_from_anywhere_equal_gymnasiums(assert_equal_steps):
    starts = RNG.uniform(-1, 1, (2000, 4)) * [3.0, 5.0, 0.4, 5.0]
    actions = RNG.integers(0, 2, (2000, 1))
    after, ends = assert_equal_steps(
        WORLD, CartPoleParams(), environment(CartPoleParams()), starts, actions
    )
    # Each of the four ways to end an episode, and none of them.
    for column, limit in ((0, POSITION_LIMIT), (2, ANGLE_LIMIT)):
        for side in (1, -1):
            assert ends[side * after[:, column] > limit].sum() > 100
    assert (~ends).sum() > 100


factor = st.floats(0.5, 2.0)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.tuples(*[factor] * 5), st.tuples(*[st.floats(-3.0, 3.0)] * 4), st.integers(0, 1))
def test_other_physics_equal_gymnasiums(assert_equal_steps, factors, start, action):
    nominal = CartPoleParams()
    params = CartPoleParams(*(f * x for f, x in zip(factors, nominal[:5], strict=True)))
    assert_equal_steps(WORLD, params, environment(params), [start], np.array([[action]]))
