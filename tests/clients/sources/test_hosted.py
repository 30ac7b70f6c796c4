"""Episodes on the host: a client's own columns, its own world, its own seeds."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.clients.acting import Behaviour
from fedkl.clients.sources import Hosted
from fedkl.clients.sources.hosted import recording, trajectories
from fedkl.learning.policy import Policy
from fedkl.learning.settings import LearnerSettings
from fedkl.simulators.base import Recipe
from fedkl.simulators.episodes import Episode
from fedkl.simulators.pool import Workers
from fedkl.worlds import PointTarget

KEY = jax.random.key(3)
TOYS = str(Path(__file__).parents[2] / "simulators" / "toys")
HORIZON = 4


def an_episode(random, length, pictures=None):
    """Of three agents, five steps at most."""
    return Episode(
        observation=random.normal(size=(5, 3, 2)).astype(np.float32),
        action=random.normal(size=(5, 3, 1)).astype(np.float32),
        reward=random.normal(size=(5, 3)).astype(np.float32),
        terminated=np.arange(5) == length - 1,
        mask=np.arange(5) < length,
        last_observation=random.normal(size=(3, 2)).astype(np.float32),
        pictures=pictures,
    )


def test_an_agents_trajectories_are_its_own_columns():
    random = np.random.default_rng(2)
    episodes = [an_episode(random, 5), an_episode(random, 3)]
    agents = [2, 0]
    data = trajectories(episodes, agents)
    assert data.observation.shape == (2, 5, 2, 2)
    for n, agent in enumerate(agents):
        for e, one in enumerate(episodes):
            np.testing.assert_array_equal(data.observation[n, :, e], one.observation[:, agent])
            np.testing.assert_array_equal(data.action[n, :, e], one.action[:, agent])
            np.testing.assert_array_equal(data.reward[n, :, e], one.reward[:, agent])
            np.testing.assert_array_equal(data.mask[n, :, e], one.mask)
            np.testing.assert_array_equal(data.terminated[n, :, e], one.terminated)
            np.testing.assert_array_equal(data.last_observation[n, e], one.last_observation[agent])


def test_a_recording_has_the_rewards_of_its_agent():
    pictures = np.arange(4.0)[:, None]
    episode = an_episode(np.random.default_rng(2), 3, pictures)
    made = recording(episode, 1, "params")
    assert made.states is pictures
    np.testing.assert_array_equal(made.reward, episode.reward[:, 1])
    np.testing.assert_array_equal(made.mask, episode.mask)
    assert made.params == "params"


# A client with a simulator of its own.


@pytest.fixture(scope="module")
def workers():
    """Of `probe-point` on the host, whose episodes truly end after three of at most four steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TOYS)
        made = Workers(Recipe("toy_simulators:Point", {"length": 3}), 20.0, number=2)
        yield made
        made.close()


@pytest.fixture(scope="module")
def hosted(workers):
    return Hosted(workers, {"target": jnp.array(0.5)}, HORIZON)


@pytest.fixture(scope="module")
def acts():
    learner = LearnerSettings(hidden=(4,))
    return Behaviour(learner, Policy(PointTarget(), learner, KEY), None, jnp.array(1))


def test_its_episodes_come_in_the_shape_of_a_traced_worlds(hosted, acts):
    data = hosted.collect(acts, 6, KEY)
    assert data.observation.shape == (HORIZON, 6, 1)
    assert data.action.shape == (HORIZON, 6, 1)
    assert data.last_observation.shape == (6, 1)
    assert data.mask.T.tolist() == [[True, True, True, False]] * 6
    assert data.terminated.T.tolist() == [[False, False, True, False]] * 6


def test_it_is_paid_for_its_actions_by_its_own_row(workers, hosted, acts):
    data = hosted.collect(acts, 6, KEY)
    paid = -np.square(data.action[..., 0] - 0.5)
    np.testing.assert_allclose(data.reward[data.mask], paid[data.mask], rtol=1e-5)
    elsewhere = Hosted(workers, {"target": jnp.array(-2.0)}, HORIZON).collect(acts, 6, KEY)
    np.testing.assert_array_equal(elsewhere.action, data.action)
    assert (elsewhere.reward[data.mask] != data.reward[data.mask]).all()


def test_episodes_differ_and_a_key_repeats_them(hosted, acts):
    one, again = hosted.collect(acts, 6, KEY), hosted.collect(acts, 6, KEY)
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert len(set(one.action[0, :, 0].tolist())) == 6
    other = hosted.collect(acts, 6, jax.random.key(4))
    assert set(one.action[0, :, 0].tolist()).isdisjoint(other.action[0, :, 0].tolist())


def test_the_first_of_few_episodes_are_the_first_of_many(hosted, acts):
    few, many = hosted.collect(acts, 2, KEY), hosted.collect(acts, 6, KEY)
    np.testing.assert_array_equal(few.action, many.action[:, :2])


def test_a_recorded_episode_has_its_states_and_its_row(hosted, acts):
    made = hosted.record(acts, KEY)
    # The toy's picture: its target, and the steps so far.
    np.testing.assert_array_equal(made.states, [[0.5, 0], [0.5, 1], [0.5, 2], [0.5, 3]])
    assert made.mask.tolist() == [True, True, True, False]
    assert float(made.params["target"]) == 0.5
    first = hosted.collect(acts, 1, KEY)
    np.testing.assert_array_equal(made.reward, first.reward[:, 0])
