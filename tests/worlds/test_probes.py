"""The probes' known answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.core.settings import build
from fedkl.worlds import WORLDS, Bandit, Chain, Continuous, PointTarget
from fedkl.worlds.probes import CHAIN_LENGTH

KEY = jax.random.key(0)
PROBES = [Bandit, PointTarget, Chain]


def row(params, i=0):
    return jax.tree.map(lambda x: x[i], params)


@pytest.mark.parametrize("cls", PROBES)
def test_contract(cls):
    """Every probe is registered, and keeps shapes and dtypes from step to step under vmap."""
    assert WORLDS[cls.name] is cls
    world = cls(spread=0.5)
    params = world.clients(4, KEY)
    keys = jax.random.split(KEY, 4)
    continuous = isinstance(cls.actions, Continuous)
    actions = jnp.ones((4, 1)) if continuous else jnp.ones(4, int)
    state, observation = jax.vmap(world.reset)(params, keys)
    moved = jax.jit(jax.vmap(world.step))(params, state, actions, keys)
    assert observation.shape == moved.observation.shape == (4, cls.observation_size)
    assert moved.reward.shape == moved.terminated.shape == (4,)
    assert jax.eval_shape(lambda: state) == jax.eval_shape(lambda: moved.state)
    assert moved.reward.dtype == moved.observation.dtype == observation.dtype
    with pytest.raises(UserError, match="at least one client, not 0"):
        world.clients(0, KEY)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("cls", PROBES)
def test_clients_average_to_the_unshifted_one(cls, n):
    mean = jax.tree.map(lambda x: x.mean(0), cls(spread=0.7).clients(n, KEY))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), mean, row(cls().clients(1, KEY))
    )


def test_bandit_pays_the_arms_means():
    world = Bandit(spread=1.0, noise=0.1)
    params = world.clients(3, KEY)
    np.testing.assert_allclose(params.means, [[-1, 0.5, 2], [0, 0.5, 1], [1, 0.5, 0]])
    keys = jax.random.split(KEY, 4000)
    pull = jax.jit(jax.vmap(world.step, (None, None, None, 0)))
    for arm in range(3):
        moved = pull(row(params), (), jnp.asarray(arm), keys)
        np.testing.assert_allclose(moved.reward.mean(), params.means[0, arm], atol=0.01)
        np.testing.assert_allclose(moved.reward.std(), 0.1, rtol=0.05)
        assert moved.terminated.all()


def test_point_target_pays_the_squared_distance():
    world = PointTarget(centre=0.5, spread=1.0)
    params = world.clients(3, KEY)
    np.testing.assert_allclose(params.target, [-0.5, 0.5, 1.5])
    moved = world.step(row(params, 2), (), jnp.asarray([1.0]), KEY)
    np.testing.assert_allclose(moved.reward, -0.25)
    assert moved.terminated


def test_point_targets_stiffness_is_spaced_geometrically_around_one():
    params = PointTarget(stiffness=16.0).clients(3, KEY)
    np.testing.assert_allclose(params.stiffness, [0.25, 1, 4], rtol=1e-6)
    assert PointTarget(stiffness=16.0).clients(1, KEY).stiffness.tolist() == [1.0]
    softer = PointTarget(stiffness=0.25).clients(2, KEY)
    np.testing.assert_allclose(softer.stiffness, [2, 0.5], rtol=1e-6)


def test_point_targets_best_common_action_is_the_mean_weighted_by_stiffness():
    """Stiffness 4 gives k = 1/2, 2 and targets 0, 1: (0 + 2) / (1/2 + 2) = 0.8."""
    world = PointTarget(centre=0.5, spread=0.5, stiffness=4.0)
    params = world.clients(2, KEY)
    np.testing.assert_allclose(params.stiffness, [0.5, 2], rtol=1e-6)

    def rewards(action):
        step = jax.vmap(world.step, (0, None, None, None))
        return step(params, (), jnp.asarray([action]), KEY).reward

    # -1/2 0.8^2 and -2 0.2^2.
    np.testing.assert_allclose(rewards(0.8), [-0.32, -0.08], rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda a: rewards(a).sum())(0.8), 0, atol=1e-5)
    assert rewards(0.8).sum() > max(rewards(0.7).sum(), rewards(0.9).sum(), rewards(0.5).sum())


def test_point_targets_that_are_alike_in_stiffness_have_none():
    assert PointTarget(spread=0.7).clients(5, KEY).stiffness is None


@pytest.mark.parametrize("stiffness", [0.0, -1.0])
def test_point_targets_stiffness_is_above_zero(stiffness):
    with pytest.raises(UserError, match=r"world\.stiffness must be above 0"):
        build(PointTarget, {"stiffness": stiffness}, "world")


def walk(params, actions):
    world = Chain()
    state, _ = world.reset(params, KEY)

    def step(state, action):
        moved = world.step(params, state, action, KEY)
        return moved.state, moved

    return jax.lax.scan(step, state, actions)[1]


def test_chain_ends_and_stays_ended():
    params = row(Chain().clients(1, KEY))
    moved = walk(params, jnp.asarray([0, 1, 1, 0, 1, 1, 1, 1, 0]))
    assert moved.state.tolist() == [0, 1, 2, 1, 2, 3, 4, 4, 4]
    assert moved.terminated.tolist() == [s == CHAIN_LENGTH for s in moved.state.tolist()]
    np.testing.assert_allclose(moved.reward, [-0.1] * 6 + [0.9, 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(moved.observation.argmax(1), moved.state)


def test_chain_optimal_return():
    params = Chain(spread=0.5).clients(3, KEY)
    np.testing.assert_allclose(Chain.optimal_return(params), [0.1, 0.6, 1.1], rtol=1e-6)
    client = row(params, 2)
    rewards = walk(client, jnp.ones(CHAIN_LENGTH, int)).reward
    np.testing.assert_allclose(
        Chain.optimal_return(client, 0.9),
        (rewards * 0.9 ** np.arange(CHAIN_LENGTH)).sum(),
        rtol=1e-6,
    )


def test_chain_values_of_the_uniform_policy():
    params = row(Chain().clients(1, KEY))
    # The walk takes N(N+1) - i(i+1) steps on average from i to the end N.
    i = np.arange(CHAIN_LENGTH + 1)
    steps = CHAIN_LENGTH * (CHAIN_LENGTH + 1) - i * (i + 1)
    np.testing.assert_allclose(
        Chain.uniform_values(params), np.where(i < CHAIN_LENGTH, 1 - 0.1 * steps, 0), rtol=1e-6
    )

    actions = jax.random.bernoulli(KEY, 0.5, (4000, Chain.horizon)).astype(int)
    moved = jax.jit(jax.vmap(walk, (None, 0)))(params, actions)
    assert moved.terminated[:, -1].mean() > 0.999
    returns = (moved.reward * 0.9 ** np.arange(Chain.horizon)).sum(1)
    np.testing.assert_allclose(Chain.uniform_values(params, 0.9)[0], returns.mean(), atol=0.02)
