"""Acrobot beside Gymnasium's."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedkl.worlds import Acrobot
from fedkl.worlds.classic import AcrobotParams, AcrobotState
from fedkl.worlds.classic.acrobot import MAX_SPEED_1, MAX_SPEED_2

WORLD = Acrobot()
RNG = np.random.default_rng(0)
NAMES = {
    "link_length_1": "LINK_LENGTH_1",
    "link_mass_1": "LINK_MASS_1",
    "link_mass_2": "LINK_MASS_2",
    "link_com_1": "LINK_COM_POS_1",
    "link_com_2": "LINK_COM_POS_2",
    "link_moi": "LINK_MOI",
}


def environment(params):
    """Gymnasium's, with these physics and its own gravity, which it has no name for."""
    env = gym.make("Acrobot-v1").unwrapped
    for ours, theirs in NAMES.items():
        setattr(env, theirs, getattr(params, ours))
    env.AVAIL_TORQUE = [-params.max_torque, 0.0, params.max_torque]
    return env


def test_horizon_limits_and_physics_are_gymnasiums():
    env = gym.make("Acrobot-v1")
    assert env.spec.max_episode_steps == WORLD.horizon
    assert (env.unwrapped.MAX_VEL_1, env.unwrapped.MAX_VEL_2) == (MAX_SPEED_1, MAX_SPEED_2)
    assert AcrobotParams().link_length_2 == env.unwrapped.LINK_LENGTH_2
    for ours, theirs in NAMES.items():
        assert getattr(env.unwrapped, theirs) == getattr(AcrobotParams(), ours)
    assert env.unwrapped.AVAIL_TORQUE == [-1.0, 0.0, 1.0]


def test_episodes_equal_gymnasiums_up_to_the_goal(assert_equal_steps):
    params = AcrobotParams()
    starts = RNG.uniform(-1, 1, (30, 4)) * [3.0, 3.0, 3.0, 5.0]
    actions = RNG.integers(0, 3, (30, 100))
    _, ends = assert_equal_steps(WORLD, params, environment(params), starts, actions)
    assert ends.sum() > 10
    assert (~ends).sum() > 300


def test_steps_from_anywhere_equal_gymnasiums(assert_equal_steps):
    params = AcrobotParams()
    starts = RNG.uniform(-1, 1, (2000, 4)) * [np.pi, np.pi, MAX_SPEED_1, MAX_SPEED_2]
    actions = RNG.integers(0, 3, (2000, 1))
    after, ends = assert_equal_steps(WORLD, params, environment(params), starts, actions)
    assert min(ends.sum(), (~ends).sum()) > 100
    assert np.abs(after[:, :2]).max() <= np.pi
    for column, limit in ((2, MAX_SPEED_1), (3, MAX_SPEED_2)):
        assert (np.abs(after[:, column]) == limit).sum() > 20


factor = st.floats(0.5, 2.0)
angle, speed = st.floats(-3.0, 3.0), st.floats(-10.0, 10.0)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.tuples(*[factor] * 7), st.tuples(angle, angle, speed, speed), st.integers(0, 2))
def test_other_physics_equal_gymnasiums(
    assert_equal_steps, replace_constant, factors, start, action
):
    parameters = ["gravity", "max_torque", *(name for name in NAMES if name != "link_length_1")]
    nominal = AcrobotParams()
    params = nominal._replace(
        **{name: f * getattr(nominal, name) for name, f in zip(parameters, factors, strict=True)}
    )
    env = environment(params)
    replace_constant(env, "_dsdt", 9.8, params.gravity)
    assert_equal_steps(WORLD, params, env, [start], np.array([[action]]))


def test_a_longer_first_link_moves_as_gymnasiums(assert_equal_steps):
    """Where both are far from the goal: Gymnasium measures heights as if links had length 1."""
    params = AcrobotParams(link_length_1=1.3)
    starts = RNG.uniform(-0.5, 0.5, (200, 4))
    actions = RNG.integers(0, 3, (200, 1))
    _, ends = assert_equal_steps(WORLD, params, environment(params), starts, actions)
    assert not ends.any()


def steps_from(state, params):
    state = AcrobotState(*(jnp.asarray(x) for x in state))
    return WORLD.step(params, state, jnp.asarray(1), jax.random.key(0))


@pytest.mark.parametrize(
    ("lengths", "goal", "arrived"),
    [
        ((1.0, 1.0), 1.0, True),
        ((1.0, 1.0), 1.99, True),
        ((1.0, 1.0), 2.01, False),
        ((0.7, 0.2), 0.89, True),
        ((0.7, 0.2), 1.0, False),
        ((0.2, 0.9), 1.0, True),
    ],
)
def test_links_that_stand_upright_are_as_high_as_they_are_long(lengths, goal, arrived):
    params = AcrobotParams(link_length_1=lengths[0], link_length_2=lengths[1], goal_height=goal)
    moved = steps_from((np.pi, 0.0, 0.0, 0.0), params)
    assert bool(moved.terminated) == arrived
    assert moved.reward == (0.0 if arrived else -1.0)


def test_without_gravity_and_torque_what_rests_stays_at_rest():
    bent = (1.0, 0.5, 0.0, 0.0)
    moved = steps_from(bent, AcrobotParams(gravity=0.0))
    np.testing.assert_allclose(moved.state, bent, rtol=1e-6)
