"""The wrapper that distorts actions and observations: what reaches the world, and what is seen."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.worlds import (
    WORLDS,
    Chain,
    Continuous,
    Differences,
    Discrete,
    Distorted,
    Pendulum,
    Transition,
    World,
)
from fedkl.worlds.distorted import distorted, without_table

KEY = jax.random.key(0)


class Told(NamedTuple):
    """The last action that the world was given."""

    action: jax.Array


class Echo(World):
    """Shows what it is told, twice; is paid by its sum."""

    name: ClassVar[str] = "echo"
    summary: ClassVar[str] = "for tests"
    observation_size: ClassVar[int] = 4
    actions: ClassVar[Continuous] = Continuous(2)
    horizon: ClassVar[int] = 6

    def reset(self, params, key):
        return Told(jnp.zeros(2)), jnp.zeros(4)

    def step(self, params, state, action, key):
        seen = jnp.concatenate([action, action])
        return Transition(Told(action), seen, action.sum(), jnp.asarray(False))


class Counter(Echo):
    """The same for whole numbers."""

    name: ClassVar[str] = "counter"
    actions: ClassVar[Discrete] = Discrete(10)

    def reset(self, params, key):
        return Told(jnp.zeros((), int)), jnp.zeros(4)

    def step(self, params, state, action, key):
        seen = jnp.full(4, action, float)
        return Transition(Told(action), seen, 1.0 * action, jnp.asarray(False))


def wrapped(cls, **table):
    return distorted(cls(differences=Differences.from_table(table)))


def play(world, params, actions, key=KEY):
    """First observation, and what every step led to."""
    start, first = world.reset(params, key)
    keys = jax.random.split(key, len(actions))

    def step(state, x):
        moved = world.step(params, state, *x)
        return moved.state, moved

    return first, jax.lax.scan(step, start, (jnp.asarray(actions), keys))[1]


def row(params, i=0):
    return jax.tree.map(lambda x: x[i], params)


ACTIONS = np.arange(12.0, dtype=np.float32).reshape(6, 2)


def test_an_offset_is_added_to_every_action():
    world = wrapped(Echo, action_offset=[[0.5, -1.0], [0.0, 2.0]])
    params = world.clients(3, KEY)
    for client, offset in enumerate(([0.5, -1.0], [0.0, 2.0], [0.5, -1.0])):
        _, moved = play(world, row(params, client), ACTIONS)
        np.testing.assert_allclose(moved.state.world.action, ACTIONS + np.float32(offset))
        np.testing.assert_allclose(moved.reward, ACTIONS.sum(1) + np.sum(offset))


@pytest.mark.parametrize("delay", [0, 1, 3, 5])
def test_a_late_action_acts_so_many_steps_later_and_zeros_before(delay):
    world = wrapped(Echo, action_delay=[0, 1, 3, 5])
    assert world.longest == 5
    params = row(world.clients(4, KEY), [0, 1, 3, 5].index(delay))
    _, moved = play(world, params, ACTIONS)
    expected = np.concatenate([np.zeros((delay, 2)), ACTIONS])[: len(ACTIONS)]
    np.testing.assert_array_equal(moved.observation[:, :2], expected)


def test_discrete_actions_come_late_as_well():
    world = wrapped(Counter, action_delay=2)
    _, moved = play(world, row(world.clients(1, KEY)), np.array([3, 4, 5, 6]))
    assert moved.reward.tolist() == [0, 0, 3, 4]
    assert jnp.issubdtype(moved.state.world.action.dtype, jnp.integer)


def test_what_comes_late_comes_with_the_offset_of_now():
    world = wrapped(Echo, action_delay=1, action_offset=0.5)
    _, moved = play(world, row(world.clients(1, KEY)), ACTIONS)
    late = np.concatenate([np.zeros((1, 2)), ACTIONS[:-1]])
    np.testing.assert_allclose(moved.state.world.action, late + 0.5)


@pytest.mark.parametrize("parameter", ["action_noise", "observation_noise"])
def test_noise_is_fresh_normal_and_of_the_given_deviation(parameter):
    world = wrapped(Echo, **{parameter: [0.3, 0.6]})
    params, many = world.clients(2, KEY), np.zeros((20_000, 2), np.float32)
    for client, deviation in enumerate((0.3, 0.6)):
        first, moved = play(world, row(params, client), many)
        told, seen = np.asarray(moved.state.world.action), np.asarray(moved.observation)
        noisy, quiet = (told, None) if parameter == "action_noise" else (seen, told)
        np.testing.assert_allclose(noisy.std(axis=0), deviation, rtol=0.03)
        np.testing.assert_allclose(noisy.mean(axis=0), 0, atol=0.03 * deviation)
        steps, entries = np.corrcoef(noisy[1:, 0], noisy[:-1, 0]), np.corrcoef(noisy.T)
        assert abs(steps[0, 1]) < 0.03
        assert np.abs(entries - np.eye(noisy.shape[1])).max() < 0.03
        if quiet is not None:
            assert not quiet.any()
            assert first.any()
        else:
            np.testing.assert_array_equal(seen[:, :2], told)


def test_without_noise_the_world_inside_has_the_keys_that_it_would_have_alone():
    world = wrapped(Pendulum, action_offset=0.0, action_delay=0)
    assert isinstance(world, Distorted)
    plain = Pendulum()
    actions = np.ones((5, 1), np.float32)
    one = play(plain, row(plain.clients(1, KEY)), actions)
    two = play(world, row(world.clients(1, KEY)), actions)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1].observation, two[1].observation)


def test_a_world_whose_table_asks_for_no_distortion_stays_as_it_is():
    for table in ({}, {"gravity": 3}):
        world = Pendulum(differences=Differences.from_table(table))
        assert distorted(world) is world


def test_reacher_has_noise_of_its_own_and_is_wrapped_for_the_rest_only():
    assert fedkl.preset("reacher-both").task.world == WORLDS["reacher"]()
    late = fedkl.preset("reacher-both", set={"world.clients.action_delay": [0, 1]})
    world, params = late.task.world, late.client_params
    assert isinstance(world, Distorted)
    assert params.action_offset is None
    jax.tree.map(
        np.testing.assert_array_equal, params.world, fedkl.preset("reacher-both").client_params
    )


def test_two_tables_share_the_code_that_is_compiled():
    tables = ({"gravity": 3, "action_delay": [0, 2]}, {"mass": 2, "action_delay": [1, 2]})
    one, two = (without_table(wrapped(Pendulum, **table)) for table in tables)
    assert one == two
    assert jax.tree.structure(one) == jax.tree.structure(two)


def test_two_tables_of_an_environment_share_the_code_that_is_compiled():
    one, two = (
        fedkl.preset("gym:Pendulum-v1", set={"world.clients.gravity": gravity}).task
        for gravity in (3, [5, 15])
    )
    assert jax.tree.structure(one) == jax.tree.structure(two)


def test_a_wrapped_world_is_like_the_one_inside():
    world = wrapped(Chain, observation_noise=0.1)
    assert (world.observation_size, world.horizon) == (Chain.observation_size, Chain.horizon)
    assert (world.actions, world.terminates) == (Chain.actions, True)
    assert not wrapped(Pendulum, observation_noise=0.1).terminates


def test_a_wrapped_world_trains_and_ends_columns_in_place():
    settings = {
        "federation.clients": 2, "federation.clients_per_round": 2, "federation.rounds": 1,
        "learner.iterations": 1, "learner.steps": 300, "learner.epochs": 1,
        "evaluation.episodes": 1, "world.clients.action_delay": [0, 3],
        "world.clients.observation_noise": 0.01,
    }  # fmt: skip
    (record,) = fedkl.Federation(fedkl.preset("cartpole", set=settings))
    assert record["env_steps"] == 600


def test_a_wrapped_reacher_can_be_filmed():
    pytest.importorskip("PIL")
    settings = {
        "federation.clients": 1, "federation.clients_per_round": 1, "federation.rounds": 1,
        "world.clients.action_delay": 1,
    }  # fmt: skip
    federation = fedkl.Federation(fedkl.preset("reacher-iid", set=settings))
    film = federation.film(0, deterministic=True)
    assert next(film.frames).shape[2] == 3


# A value other than the nominal one, and what it needs beside it to be seen.
OTHER = {
    "target_low": 0.1,
    "target_high": -0.1,
    "action_offset": 0.3,
    "action_noise": 0.3,
    "observation_noise": 0.3,
    "action_delay": 1,
    "means": 5.0,
    "target": 5.0,
    "stiffness": 3.0,
    "step_reward": -0.5,
    "end_reward": 5.0,
}
TRACED = ["cartpole", "pendulum", "mountain-car-continuous", "acrobot", "reacher",
          "probe-bandit", "probe-point", "probe-chain"]  # fmt: skip


def parameters():
    for name in TRACED:
        for parameter in WORLDS[name]().all_parameters:
            # The classic worlds' own parameters: tests/worlds/classic/test_contract.py.
            if parameter.name in OTHER or parameter.name == "initial_state":
                yield name, parameter.name


@pytest.mark.parametrize(("name", "parameter"), list(parameters()))
def test_every_word_changes_a_trajectory(name, parameter):
    value = {"boxes": 4} if parameter == "initial_state" else OTHER[parameter]
    plain = WORLDS[name]()
    world = wrapped(WORLDS[name], **{parameter: value})
    if isinstance(plain.actions, Continuous):
        actions = np.linspace(-1, 1, 8 * plain.actions.size, dtype=np.float32)
        actions = actions.reshape(8, plain.actions.size)
    else:
        actions = np.array([1, 0, 1, 1, 1, 1, 1, 0])
    one = play(plain, row(plain.clients(1, KEY)), actions)
    two = play(world, row(world.clients(1, KEY)), actions)
    seen = [np.asarray([*np.ravel(m.observation), *m.reward]) for _, m in (one, two)]
    assert all(np.isfinite(x).all() for x in seen)
    assert not np.array_equal(*seen) or not np.array_equal(one[0], two[0])


def test_every_word_of_every_world_is_in_one_of_these_tests():
    classic = {parameter.name for name in TRACED[:4] for parameter in WORLDS[name].parameters}
    everywhere = {parameter.name for name in TRACED for parameter in WORLDS[name]().all_parameters}
    assert everywhere - classic - {"initial_state"} == OTHER.keys()
