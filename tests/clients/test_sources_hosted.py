"""Episodes on the host: a client's own columns, its own world, its own seeds."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.clients import sources as module
from fedkl.clients.behaviour import Behaviour
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.sources import Hosted, lengths_for, recording, trajectories
from fedkl.core.errors import UserError
from fedkl.learning.advantage import next_values
from fedkl.learning.policy import Policy
from fedkl.simulators.base import Recipe
from fedkl.simulators.episodes import Columns
from fedkl.simulators.pool import Workers
from fedkl.worlds import PointTarget

KEY = jax.random.key(3)
TOYS = str(Path(__file__).parents[1] / "simulators" / "toys")
HORIZON = 4


def some_columns(random, lengths, truncated=None, pictures=None):
    """Of three agents, five steps at most."""
    shape = (5, 3, len(lengths))
    mask = np.broadcast_to(np.arange(5)[:, None, None] < np.array(lengths), shape)
    return Columns(
        observation=random.normal(size=(*shape, 2)).astype(np.float32),
        action=random.normal(size=(*shape, 1)).astype(np.float32),
        reward=random.normal(size=shape).astype(np.float32),
        terminated=random.random(shape) < 0.3,
        truncated=np.zeros(shape, bool) if truncated is None else truncated,
        mask=np.array(mask),
        last_observation=random.normal(size=(*shape[1:], 2)).astype(np.float32),
        after=None if truncated is None else random.normal(size=(*shape, 2)).astype(np.float32),
        pictures=pictures,
    )


def test_an_agents_trajectories_are_its_own_columns():
    random = np.random.default_rng(2)
    parts = [some_columns(random, [5, 3]), some_columns(random, [4])]
    agents = [2, 0]
    data = trajectories(parts, agents, 7, truncates=False)
    assert data.observation.shape == (2, 7, 3, 2)
    assert data.truncated is None
    assert data.after is None
    places = [(parts[0], 0), (parts[0], 1), (parts[1], 0)]
    for n, agent in enumerate(agents):
        for column, (part, c) in enumerate(places):
            for name in ("observation", "action", "reward", "terminated", "mask"):
                found, there = getattr(data, name)[n, :, column], getattr(part, name)[:, agent, c]
                np.testing.assert_array_equal(found[:5], there)
                assert not found[5:].any()
            last = part.last_observation[agent, c]
            np.testing.assert_array_equal(data.last_observation[n, column], last)


def test_whether_there_is_a_place_for_truncation_is_the_worlds_to_say():
    """What JAX compiles must not depend on what happened."""
    random = np.random.default_rng(2)
    cut = np.zeros((5, 3, 1), bool)
    cut[3, 1] = True
    parts = [some_columns(random, [5]), some_columns(random, [5], truncated=cut)]
    data = trajectories(parts, [1], 5, truncates=True)
    assert np.argwhere(data.truncated).tolist() == [[0, 3, 1]]
    np.testing.assert_array_equal(data.after[0, 3, 1], parts[1].after[3, 1, 0])
    assert not data.after[0, :, 0].any()
    quiet = trajectories(parts[:1], [1], 5, truncates=True)
    assert not quiet.truncated.any()
    assert jax.tree.structure(quiet) == jax.tree.structure(data)
    with pytest.raises(UserError, match="its world must say that this may happen"):
        trajectories(parts, [1], 5, truncates=False)


def test_a_recording_has_the_rewards_of_its_agent():
    pictures = np.arange(4.0)[:, None]
    episode = some_columns(np.random.default_rng(2), [3], pictures=pictures)
    made = recording(episode, 1, "params")
    assert made.states is pictures
    np.testing.assert_array_equal(made.reward, episode.reward[:, 1, 0])
    np.testing.assert_array_equal(made.mask, episode.mask[:, 1, 0])
    assert made.params == "params"


@pytest.mark.parametrize(("steps", "lengths"), [(8, [4, 4]), (9, [4, 4, 1]), (3, [3]), (4, [4])])
def test_the_last_column_is_only_as_long_as_it_must_be(steps, lengths):
    assert lengths_for(steps, 4) == lengths


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
    learner = PolicyOptimisation(hidden=(4,))
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


# Exactly so many steps.


@pytest.mark.parametrize("steps", [1, 4, 11, 40])
def test_it_fills_exactly_so_many_steps_and_ends_are_ends(hosted, acts, steps):
    """Episodes are 3 steps long, columns 4: the rows of ends are 2, and 2 in the next column."""
    data = hosted.fill(acts, steps, KEY)
    columns = -(-steps // HORIZON)
    assert data.mask.shape == (HORIZON, columns)
    assert data.mask.sum() == steps
    ends = np.zeros((HORIZON, columns), bool)
    ends[2] = True
    np.testing.assert_array_equal(data.terminated, ends & data.mask)
    assert data.truncated is None


def test_a_true_end_is_never_bootstrapped_and_a_cut_is(hosted, acts):
    """With a critic that says 1 everywhere and 5 where the data end."""
    data = hosted.fill(acts, 11, KEY)
    ones = np.ones(data.reward.shape, np.float32)
    last = np.full(3, 5.0, np.float32)
    next_value, continues = next_values(data, ones, last, np.zeros(()), True)
    # Ends are in row 2 of every column; columns of 4, 4 and 3 rows are cut after their last.
    assert next_value[data.mask].reshape(-1).tolist() == [
        *(1, 1, 1),
        *(1, 1, 1),
        *(0, 0, 0),
        *(5, 5),
    ]
    assert continues[:, 0].tolist() == [True, True, False, False]


def test_the_first_of_few_steps_are_the_first_of_many(hosted, acts):
    few, many = hosted.fill(acts, 8, KEY), hosted.fill(acts, 41, KEY)
    assert many.mask.shape == (HORIZON, 11)
    np.testing.assert_array_equal(few.action, many.action[:, :2])


def test_how_columns_are_cut_into_jobs_changes_nothing(hosted, acts, monkeypatch):
    """So that nothing depends on how many cores there are."""
    filled, collected = hosted.fill(acts, 41, KEY), hosted.collect(acts, 11, KEY)
    for columns in (1, 3):
        monkeypatch.setattr(module, "COLUMNS_IN_A_JOB", (columns, columns))
        jax.tree.map(np.testing.assert_array_equal, filled, hosted.fill(acts, 41, KEY))
        jax.tree.map(np.testing.assert_array_equal, collected, hosted.collect(acts, 11, KEY))


def test_jobs_of_a_collection_are_of_about_the_same_size(hosted, acts):
    jobs = hosted._jobs(acts, [HORIZON] * 35, KEY)
    assert [len(job.seeds) for job in jobs] == [12, 12, 11]
    assert all(len(actor.seeds) == len(job.seeds) for job in jobs for actor in job.actors)


@pytest.mark.parametrize(
    ("columns", "workers", "jobs"),
    # From eight columns in a job, if there are workers for them, to sixteen.
    [(3, 1, 1), (3, 9, 1), (11, 1, 1), (11, 2, 2), (11, 9, 2), (40, 1, 3), (40, 4, 4), (40, 9, 5)],
)
def test_there_is_a_job_for_each_worker_unless_it_would_be_small_or_large(
    acts, columns, workers, jobs
):
    pool = Workers(Recipe("toy_simulators:Point", {}), 20.0, number=workers)
    assert len(Hosted(pool, None, HORIZON)._jobs(acts, [HORIZON] * columns, KEY)) == jobs
