"""The continuous Mountain Car beside Gymnasium's."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fedkl.worlds import MountainCarContinuous
from fedkl.worlds.classic import MountainCarParams, MountainCarState
from fedkl.worlds.classic.mountain_car import LEFT_WALL, MAX_SPEED, RIGHT_END

WORLD = MountainCarContinuous()
RNG = np.random.default_rng(0)
STEP = jax.jit(WORLD.step)


def environment(params):
    """Gymnasium's, with these physics and its own gravity, which it has no name for."""
    env = gym.make("MountainCarContinuous-v0").unwrapped
    for name in ("power", "goal_position", "goal_velocity"):
        setattr(env, name, getattr(params, name))
    return env


def clipped(actions):
    """Gymnasium charges for what lies beyond the limits, too; we do not."""
    return np.clip(actions, -1, 1)


def test_horizon_limits_and_physics_are_gymnasiums():
    env = gym.make("MountainCarContinuous-v0")
    assert env.spec.max_episode_steps == WORLD.horizon
    assert (env.unwrapped.min_position, env.unwrapped.max_position) == (LEFT_WALL, RIGHT_END)
    assert env.unwrapped.max_speed == MAX_SPEED
    for name in ("power", "goal_position", "goal_velocity"):
        assert getattr(env.unwrapped, name) == getattr(MountainCarParams(), name)


def test_episodes_equal_gymnasiums_up_to_the_goal(assert_equal_steps):
    params = MountainCarParams()
    starts = np.stack([RNG.uniform(-1.2, 0.4, 60), RNG.uniform(-0.07, 0.07, 60)], axis=1)
    actions = RNG.uniform(-1.5, 1.5, (60, 200, 1))
    actions[20:40] = 1.2
    actions[40:] = -1.2
    after, ends = assert_equal_steps(WORLD, params, environment(params), starts, actions, clipped)
    assert ends.sum() > 5
    at_the_wall = after[:, 0] <= np.float32(LEFT_WALL)
    assert at_the_wall.sum() > 20
    assert (after[at_the_wall, 1] == 0).all()


def test_steps_from_anywhere_equal_gymnasiums(assert_equal_steps):
    params = MountainCarParams()
    starts = RNG.uniform([-1.2, -0.07], [0.6, 0.07], (3000, 2))
    actions = RNG.uniform(-3, 3, (3000, 1, 1))
    after, ends = assert_equal_steps(WORLD, params, environment(params), starts, actions, clipped)
    assert ends.sum() > 100
    assert (after[:, 0] <= np.float32(LEFT_WALL)).sum() > 20
    assert (after[:, 0] == np.float32(RIGHT_END)).sum() > 20
    fast = np.abs(after[:, 1]) == np.float32(MAX_SPEED)
    assert fast.sum() > 10


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.tuples(
        st.floats(0.5, 3.0), st.floats(0.5, 3.0), st.floats(0.2, 0.55), st.floats(-0.02, 0.02)
    ),
    st.tuples(st.floats(-1.2, 0.6), st.floats(-0.07, 0.07)),
    st.floats(-2.0, 2.0),
)
def test_other_physics_equal_gymnasiums(
    assert_equal_steps, replace_constant, physics, start, action
):
    power, gravity, goal_position, goal_velocity = physics
    params = MountainCarParams(0.0015 * power, 0.0025 * gravity, goal_position, goal_velocity)
    env = environment(params)
    replace_constant(env, "step", 0.0025, params.gravity)
    moved = STEP(
        params, MountainCarState(*map(jnp.asarray, start)), jnp.asarray([action]), jax.random.key(0)
    ).state
    # Rounding decides who has arrived if the car stops right there.
    assume(abs(moved.position - goal_position) > 1e-6)
    assume(abs(moved.velocity - goal_velocity) > 1e-6)
    assert_equal_steps(WORLD, params, env, [start], np.array([[[action]]]), clipped)


def test_the_goal_pays_100_and_full_power_costs_a_tenth():
    state = MountainCarState(jnp.asarray(0.44), jnp.asarray(0.05))
    moved = WORLD.step(MountainCarParams(), state, jnp.asarray([7.0]), jax.random.key(0))
    assert moved.terminated
    assert moved.reward == pytest.approx(99.9)
    too_slow = MountainCarParams(goal_velocity=0.06)
    moved = WORLD.step(too_slow, state, jnp.asarray([7.0]), jax.random.key(0))
    assert not moved.terminated
    assert moved.reward == pytest.approx(-0.1)
