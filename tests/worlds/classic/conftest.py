"""Gymnasium's environments beside ours, one step at a time."""

import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

try:
    from jax import enable_x64
except ImportError:  # before JAX 0.8
    from jax.experimental import enable_x64


@eqx.filter_jit
def step_all(world, params, states, actions):
    """One step from each state; nothing is random in these worlds."""
    step = jax.vmap(world.step, (None, 0, 0, None))
    return step(params, states, actions, jax.random.key(0))


def recorded(env, starts, actions):
    """Gymnasium's episodes: state before, which action, state after, observation, reward, end."""
    steps = []
    for start, row in zip(starts, actions, strict=True):
        env.reset(seed=0)
        env.state = np.array(start)
        for t, action in enumerate(row):
            before = np.array(env.state, float)
            observation, reward, terminated, truncated, _ = env.step(action)
            after = np.array(env.state, float)
            steps.append((before, t, after, np.array(observation), reward, terminated))
            assert not truncated
            if terminated:
                break
    return [np.array(column) for column in zip(*steps, strict=True)]


@pytest.fixture
def assert_equal_steps():
    """Compares a world with an environment of Gymnasium's, from the latter's state at each step."""

    def compare(world, params, env, starts, actions, told=lambda actions: actions, tolerance=1e-6):
        """`told` makes what Gymnasium is given of our actions; returns states after, and ends."""
        before, t, after, observation, reward, terminated = recorded(env, starts, told(actions))
        lengths = np.diff(np.append(np.flatnonzero(t == 0), len(t)))
        chosen = actions[np.repeat(np.arange(len(starts)), lengths), t]
        state_type = type(jax.eval_shape(world.reset, params, jax.random.key(0))[0])
        with enable_x64(True):
            doubles = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
            moved = step_all(world, doubles, state_type(*before.T), jnp.asarray(chosen))
            moved = jax.tree.map(np.asarray, moved)
        assert {x.dtype for x in (*moved.state, moved.observation, moved.reward)} == {
            np.dtype(np.float64)
        }
        close = dict(rtol=0, atol=tolerance)
        np.testing.assert_allclose(np.stack(moved.state, axis=1), after, **close)
        # Gymnasium rounds what it shows to single precision.
        np.testing.assert_allclose(moved.observation, observation, rtol=1e-7, atol=tolerance)
        np.testing.assert_allclose(moved.reward, reward, **close)
        np.testing.assert_array_equal(moved.terminated, terminated)
        return after, terminated

    return compare


@pytest.fixture
def replace_constant():
    """Changes a number that Gymnasium's code has no name for."""

    def replace(env, method, old, new):
        code = getattr(env, method).__func__.__code__
        assert code.co_consts.count(old) == 1
        constants = tuple(new if constant == old else constant for constant in code.co_consts)
        changed = types.FunctionType(
            code.replace(co_consts=constants), getattr(env, method).__func__.__globals__
        )
        setattr(env, method, types.MethodType(changed, env))

    return replace
