"""Pendulum beside Gymnasium's."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedkl.worlds import Pendulum
from fedkl.worlds.classic import PendulumParams, PendulumState

WORLD = Pendulum()
RNG = np.random.default_rng(0)
NAMES = {"gravity": "g", "mass": "m", "length": "l", "max_torque": "max_torque",
         "max_speed": "max_speed"}  # fmt: skip


def environment(params):
    env = gym.make("Pendulum-v1").unwrapped
    for ours, theirs in NAMES.items():
        setattr(env, theirs, getattr(params, ours))
    return env


def test_horizon_and_physics_are_gymnasiums():
    env = gym.make("Pendulum-v1")
    assert env.spec.max_episode_steps == WORLD.horizon
    for ours, theirs in NAMES.items():
        assert getattr(env.unwrapped, theirs) == getattr(PendulumParams(), ours)


def test_episodes_equal_gymnasiums(assert_equal_steps):
    params = PendulumParams()
    starts = RNG.uniform(-1, 1, (50, 2)) * [np.pi, 1.0]
    # Slow motions and fast ones, beyond the motor's limits and the speed's.
    actions = RNG.uniform(-2, 2, (50, 200, 1))
    actions[25:] = np.where(RNG.uniform(size=(25, 1, 1)) < 0.5, -1.0, 1.0) + 0.1 * actions[25:]
    after, ends = assert_equal_steps(
        WORLD, params, environment(params), starts, actions, lambda a: 2.0 * a
    )
    assert len(after) == 50 * 200
    assert not ends.any()
    assert np.abs(after[:, 0]).max() > 4 * np.pi  # whole turns are counted
    assert min((after[:, 1] == 8).sum(), (after[:, 1] == -8).sum()) > 10


factor = st.floats(0.5, 2.0)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.tuples(*[factor] * 5),
    st.tuples(st.floats(-20.0, 20.0), st.floats(-8.0, 8.0)),
    st.floats(-3.0, 3.0),
)
def test_other_physics_equal_gymnasiums(assert_equal_steps, factors, start, action):
    nominal = PendulumParams()
    params = PendulumParams(*(f * x for f, x in zip(factors, nominal[:5], strict=True)))
    assert_equal_steps(
        WORLD,
        params,
        environment(params),
        [start],
        np.array([[[action]]]),
        lambda a: params.max_torque * a,
    )


def test_one_is_the_whole_torque_and_more_is_no_more():
    """Upright at rest only the torque counts: 0.001 * 2² of cost, 3 * 2 * 0.05 of speed."""
    params, state = PendulumParams(), PendulumState(jnp.zeros(()), jnp.zeros(()))
    for action in (1.0, 5.0):
        moved = WORLD.step(params, state, jnp.asarray([action]), jax.random.key(0))
        np.testing.assert_allclose([moved.reward, moved.state.speed], [-0.004, 0.3], rtol=1e-6)
    half = WORLD.step(params, state, jnp.asarray([-0.5]), jax.random.key(0))
    np.testing.assert_allclose([half.reward, half.state.speed], [-0.001, -0.15], rtol=1e-6)
    assert not WORLD.terminates
