"""Episodes of all clients' worlds: each column is one client's from its first step to its last."""

from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.clients.behaviour import Behaviour
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.sources import Hosted, PooledHosted, PooledTraced, Traced
from fedkl.learning.policy import Policy
from fedkl.simulators.base import Recipe
from fedkl.simulators.pool import Workers
from fedkl.worlds import Continuous, PointTarget, Transition, World

KEY = jax.random.key(0)
TOYS = str(Path(__file__).parents[1] / "simulators" / "toys")
HORIZON = 4


class Named(World):
    """A client's world tells its number, which is also how long its episodes are."""

    name: ClassVar[str] = "named"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Continuous] = Continuous(1)
    horizon: ClassVar[int] = 5

    def clients(self, n, key):
        return 1.0 + jnp.arange(n)

    def reset(self, params, key):
        return jnp.zeros(()), params[None]

    def step(self, params, state, action, key):
        return Transition(state + 1, params[None], 10 * params, state + 1 >= params)


class Endless(Named):
    name: ClassVar[str] = "endless"
    terminates: ClassVar[bool] = False

    def step(self, params, state, action, key):
        return super().step(params, state, action, key)._replace(terminated=jnp.asarray(False))


def act(observation, key):
    return observation


def run(world, method, number, clients=3, key=KEY):
    source = PooledTraced(world, world.clients(clients, key))
    return jax.device_get(jax.jit(lambda key: getattr(source, method)(act, number, key))(key))


def shares(data, clients):
    """The share of the steps that each client's world has."""
    whose = data.observation[..., 0][data.mask]
    return np.bincount(whose.astype(int), minlength=clients + 1)[1:] / whose.size


@pytest.mark.parametrize("world", [Named(), Endless()], ids=lambda world: world.name)
def test_a_column_stays_in_one_world_which_pays_for_it(world):
    data = run(world, "fill", 5 * 300)
    whose = data.observation[..., 0]
    assert (whose == whose[0]).all()
    np.testing.assert_array_equal(data.reward, 10 * whose)
    np.testing.assert_array_equal(data.last_observation[:, 0], whose[0])


@pytest.mark.parametrize("world", [Named(), Endless()], ids=lambda world: world.name)
def test_every_world_has_the_same_share_of_the_steps_however_long_its_episodes(world):
    """Of 3000 columns a third each: the deviation of a share is sqrt(2 / 9 / 3000) = 0.0086."""
    data = run(world, "fill", 5 * 3000)
    np.testing.assert_allclose(shares(data, 3), 1 / 3, atol=4 * 0.0086)


def test_whole_episodes_are_drawn_alike():
    """Episodes of 1, 2 and 3 steps, a third each."""
    data = run(Named(), "collect", 3000)
    lengths = data.mask.sum(axis=0)
    np.testing.assert_array_equal(lengths, data.observation[0, :, 0])
    np.testing.assert_allclose(np.bincount(lengths)[1:] / 3000, 1 / 3, atol=4 * 0.0086)


def test_another_key_draws_other_worlds_and_the_same_key_the_same():
    one, again = (run(Endless(), "fill", 500)[0] for _ in range(2))
    other = run(Endless(), "fill", 500, key=jax.random.key(1))[0]
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_of_worlds_that_are_the_same_it_gives_what_one_of_them_does():
    """Which is drawn makes no difference then, and nothing else is drawn otherwise."""
    world, row = PointTarget(), jnp.float32(0.5)
    alike = PooledTraced(world, world.params(jnp.full(4, row)))
    one = Traced(world, world.params(row))
    for method, number in (("collect", 6), ("fill", 30)):
        a, b = (
            jax.jit(lambda key, s=s, m=method, n=number: getattr(s, m)(act, n, key))(KEY)
            for s in (alike, one)
        )
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), a, b)


def test_an_episode_to_look_at_is_of_one_of_the_worlds():
    source = PooledTraced(Endless(), Endless().clients(3, KEY))
    seen = source.record(act, KEY)
    assert float(seen.params) in (1, 2, 3)
    np.testing.assert_array_equal(seen.reward, np.full(5, 10 * float(seen.params)))


# On the host.


@pytest.fixture(scope="module")
def workers():
    """Of `probe-point` on the host, whose episodes truly end after three of at most four steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TOYS)
        made = Workers(Recipe("toy_simulators:Point", {"length": 3}), 20.0, number=2)
        yield made
        made.close()


@pytest.fixture(scope="module")
def acts():
    learner = PolicyOptimisation(hidden=(4,))
    return Behaviour(learner, Policy(PointTarget(), learner, KEY), None, jnp.array(1))


TARGETS = np.array([-8.0, 0.0, 8.0])


def targets_of(data):
    """The target by which each step was paid: the reward is -(action - target)^2."""
    action = np.asarray(data.action)[..., 0]
    misses = np.abs(-np.square(action[..., None] - TARGETS) - np.asarray(data.reward)[..., None])
    return TARGETS[np.argmin(misses, axis=-1)]


def test_a_simulator_on_the_host_visits_every_clients_world_too(workers, acts):
    """Of 600 columns a third each: the deviation of a share is sqrt(2 / 9 / 600) = 0.019."""
    source = PooledHosted(workers, {"target": TARGETS}, HORIZON)
    data = source.fill(acts, HORIZON * 600, KEY)
    found = targets_of(data)
    assert (found == found[0]).all()
    parts = [(found[0] == target).mean() for target in TARGETS]
    np.testing.assert_allclose(parts, 1 / 3, atol=4 * 0.019)
    again = source.fill(acts, HORIZON * 600, KEY)
    jax.tree.map(np.testing.assert_array_equal, data, again)


def test_on_the_host_exactly_the_steps_that_were_asked_for_are_taken(workers, acts):
    data = PooledHosted(workers, {"target": TARGETS}, HORIZON).fill(acts, 4 * HORIZON + 1, KEY)
    assert data.mask.sum() == 4 * HORIZON + 1


def test_on_the_host_worlds_that_are_the_same_give_the_same_columns(workers, acts):
    pooled = PooledHosted(workers, {"target": np.full(2, 0.5)}, HORIZON).collect(acts, 6, KEY)
    one = Hosted(workers, {"target": np.array(0.5)}, HORIZON).collect(acts, 6, KEY)

    def sorted_columns(data):
        return np.sort(np.asarray(data.action)[..., 0].sum(axis=0))

    np.testing.assert_allclose(sorted_columns(pooled), sorted_columns(one), rtol=1e-6)
