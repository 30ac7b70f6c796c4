"""What the four worlds promise alike."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.core.errors import UserError
from fedkl.worlds import WORLDS, Continuous
from fedkl.worlds.classic import (
    Acrobot,
    AcrobotParams,
    CartPole,
    CartPoleParams,
    MountainCarContinuous,
    MountainCarParams,
    Pendulum,
    PendulumParams,
)

try:
    from jax import enable_x64
except ImportError:  # before JAX 0.8
    from jax.experimental import enable_x64

pytestmark = pytest.mark.usefixtures("quick_compilation")

NOMINAL = {
    CartPole: CartPoleParams(),
    Pendulum: PendulumParams(),
    MountainCarContinuous: MountainCarParams(),
    Acrobot: AcrobotParams(),
}
KEY = jax.random.key(0)
RESETS = {cls: jax.jit(cls().reset) for cls in NOMINAL}


def as_arrays(params):
    return jax.tree.map(jnp.asarray, params)


@partial(jax.jit, static_argnums=(0, 2))
def play(cls, params, steps):
    """Observations, rewards and ends of random actions, always the same; ends change nothing."""
    world = cls()
    if isinstance(cls.actions, Continuous):
        actions = jax.random.normal(KEY, (steps, cls.actions.size))
    else:
        actions = jax.random.randint(KEY, (steps,), 0, cls.actions.number)

    def step(state, action):
        moved = world.step(params, state, action, KEY)
        return moved.state, (moved.observation, moved.reward, moved.terminated)

    start, first = world.reset(params, KEY)
    return first, jax.lax.scan(step, start, actions)[1]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("cls", NOMINAL)
def test_shapes_and_dtypes_are_kept_under_vmap(cls, x64):
    assert WORLDS[cls.name] is cls
    with enable_x64(x64):
        world, dtype = cls(), np.dtype(np.float64 if x64 else np.float32)
        params = world.clients(4, KEY)
        keys = jax.random.split(KEY, 4)
        actions = (
            jnp.ones((4, 1), dtype) if isinstance(cls.actions, Continuous) else jnp.ones(4, int)
        )
        state, observation = jax.vmap(world.reset)(params, keys)
        moved = jax.jit(jax.vmap(world.step))(params, state, actions, keys)
        assert observation.shape == moved.observation.shape == (4, cls.observation_size)
        assert moved.reward.shape == moved.terminated.shape == (4,)
        assert jax.eval_shape(lambda: state) == jax.eval_shape(lambda: moved.state)
        for leaf in (*params, *state, observation, moved.observation, moved.reward):
            assert leaf.dtype == dtype


@pytest.mark.parametrize("cls", NOMINAL)
def test_clients_are_all_nominal(cls):
    params = cls().clients(3, KEY)
    assert type(params) is type(NOMINAL[cls])
    for parameter, value in zip(params, NOMINAL[cls], strict=True):
        np.testing.assert_array_equal(parameter, np.full(3, value, np.float32))
    with pytest.raises(UserError, match="at least one client, not 0"):
        cls().clients(0, KEY)


# What a parameter needs beside it to be seen: a limit or a goal that random actions come past.
BESIDE = {
    "goal_position": {"initial_low": 0.35, "initial_high": 0.4, "goal_velocity": -0.05},
    "goal_velocity": {"initial_low": 0.5, "initial_high": 0.55},
    "link_length_2": {"initial_bound": 3.0, "goal_height": 0.0},
    "goal_height": {"initial_bound": 3.0},
    "max_speed": {"initial_speed": 10.0},
}
OTHER = {"goal_position": 0.3, "goal_velocity": 0.06, "goal_height": 0.0, "link_length_2": 3.0}


@pytest.mark.parametrize(
    ("cls", "parameter"),
    [(cls, parameter) for cls in NOMINAL for parameter in NOMINAL[cls]._fields],
)
def test_every_word_changes_a_trajectory(cls, parameter):
    params = NOMINAL[cls]._replace(**BESIDE.get(parameter, {}))
    other = params._replace(**{parameter: OTHER.get(parameter, 1.3 * getattr(params, parameter))})
    one, two = (play(cls, as_arrays(each), 60) for each in (params, other))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((one, two)))
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    )


@pytest.mark.parametrize("cls", NOMINAL)
def test_a_whole_horizon_stays_finite_whatever_ended_before(cls):
    played = play(cls, as_arrays(NOMINAL[cls]), cls.horizon)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(played))


number = st.floats(-2.0, 2.0, width=32, allow_subnormal=False)


@settings(max_examples=50, deadline=None)
@given(number, number, st.integers(0, 2**31))
def test_episodes_start_in_the_clients_box(a, b, seed):
    low, high = min(a, b), max(a, b)
    key = jax.random.key(seed)
    box = dict(initial_low=low, initial_high=high)
    state, observation = RESETS[CartPole](as_arrays(CartPoleParams(**box)), key)
    assert all(low <= x <= high for x in state)
    np.testing.assert_array_equal(state, observation)

    state, observation = RESETS[MountainCarContinuous](as_arrays(MountainCarParams(**box)), key)
    assert low <= state.position <= high
    assert state.velocity == 0
    np.testing.assert_array_equal(state, observation)

    params = PendulumParams(initial_angle=abs(a), initial_speed=abs(b))
    state, _ = RESETS[Pendulum](as_arrays(params), key)
    assert abs(state.angle) <= abs(a)
    assert abs(state.speed) <= abs(b)

    state, _ = RESETS[Acrobot](as_arrays(AcrobotParams(initial_bound=abs(a))), key)
    assert all(abs(x) <= abs(a) for x in state)


@pytest.mark.parametrize(
    ("cls", "low", "high"),
    [
        (CartPole, [-0.05] * 4, [0.05] * 4),
        (Pendulum, [-np.pi, -1.0], [np.pi, 1.0]),
        (MountainCarContinuous, [-0.6, 0.0], [-0.4, 0.0]),
        (Acrobot, [-0.1] * 4, [0.1] * 4),
    ],
)
def test_first_states_are_uniform_as_gymnasiums(cls, low, high):
    keys = jax.random.split(KEY, 10_000)
    reset = jax.jit(jax.vmap(cls().reset, (None, 0)))
    state, _ = reset(as_arrays(NOMINAL[cls]), keys)
    for x, a, b in zip(state, low, high, strict=True):
        if a == b:
            np.testing.assert_array_equal(x, a)
        else:
            # Ten drawers of equal size hold a tenth each, within five standard deviations.
            drawers = np.histogram(x, 10, (a, b))[0] / len(x)
            np.testing.assert_allclose(drawers, 0.1, atol=0.015)
    products = np.cov(np.stack(state))
    spread = (np.array(high) - low) ** 2 / 12
    np.testing.assert_allclose(products, np.diag(spread), atol=0.05 * spread.max())
