"""Whole episodes: what is kept of them, and that entries after an end are nothing."""

import numpy as np
import pytest

from fedkl.simulators.base import Recipe, Seed
from fedkl.simulators.episodes import Job, run_episode


@pytest.fixture
def walk(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    return lambda **arguments: Recipe("toy_simulators:Walk", arguments).make()


@pytest.fixture
def point(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    return lambda length: Recipe("toy_simulators:Point", {"length": length}).make()


@pytest.fixture
def to_the_point(linear):
    """Makes jobs for an agent that always acts with 0.5."""

    def make(target, steps):
        params = {"target": np.float32(target)}
        return Job(Seed((4,)), [linear(0.5, [0.0])], steps, params=params)

    return make


@pytest.fixture
def job(linear):
    actors = [linear(0.5, [1.0, -2.0], 0.1, Seed((n,))) for n in range(2)]
    return Job(Seed((4,)), actors, 8)


def test_an_episode_that_is_cut_off_is_whole_and_did_not_end(walk, job):
    episode = run_episode(walk(), job)
    assert episode.mask.all()
    assert not episode.terminated.any()
    assert episode.observation.shape == (8, 2, 2)
    assert episode.action.shape == (8, 2, 1)
    assert episode.pictures is None


def test_nothing_is_kept_after_a_true_end(walk, job):
    episode = run_episode(walk(ends=5), job)
    assert episode.mask.tolist() == [True] * 5 + [False] * 3
    assert episode.terminated.tolist() == [False] * 4 + [True] + [False] * 3
    for array in (episode.observation, episode.action, episode.reward):
        assert np.all(array[:5] != 0)
        assert np.all(array[5:] == 0)


def test_an_end_in_the_last_step_is_an_end(walk, job):
    assert run_episode(walk(ends=8), job).terminated.tolist() == [False] * 7 + [True]
    assert not run_episode(walk(ends=9), job).terminated.any()


def test_an_end_takes_nothing_from_what_came_before(walk, job):
    whole, short = run_episode(walk(), job), run_episode(walk(ends=5), job)
    for a, b in zip(whole[:3], short[:3], strict=True):
        assert np.array_equal(a[:5], b[:5])
    assert np.array_equal(short.last_observation, whole.observation[5])


def test_a_step_is_seen_acted_and_rewarded_in_its_own_row(walk, job):
    """The toy's reward is the sum of the observation that a step leads to."""
    episode = run_episode(walk(), job)
    after = np.concatenate([episode.observation[1:], episode.last_observation[None]])
    np.testing.assert_allclose(episode.reward, after.sum(axis=-1), rtol=1e-6)
    mean = 0.5 + episode.observation @ np.array([[1.0], [-2.0]])
    noise = (episode.action - mean) / 0.1
    assert 0 < np.abs(noise).max() < 4
    np.testing.assert_allclose(episode.returns(), episode.reward.sum(axis=0), rtol=1e-6)


def test_pictures_are_those_of_the_start_and_of_every_step(walk, job):
    episode = run_episode(walk(ends=5), job._replace(pictures=True))
    assert episode.pictures.shape == (6, 4)
    assert np.array_equal(episode.pictures[:5].reshape(5, 2, 2), episode.observation[:5])


def test_the_same_job_gives_the_same_bits(walk, job):
    simulator = walk()
    first = run_episode(simulator, job)
    run_episode(simulator, job._replace(seed=Seed((5,))))
    second = run_episode(simulator, job)
    assert all(np.array_equal(a, b) for a, b in zip(first[:-1], second[:-1], strict=True))


def test_agents_and_actors_must_be_as_many(walk, job):
    with pytest.raises(ValueError, match="2 actors for 3 agents"):
        run_episode(walk(agents=3), job)


@pytest.mark.parametrize(("steps", "length"), [(1, 1), (4, 4), (4, 2)])
def test_params_are_what_makes_the_same_simulator_another_clients(
    point, to_the_point, steps, length
):
    simulator = point(length)
    near, far = (run_episode(simulator, to_the_point(target, steps)) for target in (1.0, -1.0))
    # -(0.5 - 1)^2 and -(0.5 + 1)^2 in each of the steps.
    assert near.returns().tolist() == [-0.25 * length]
    assert far.returns().tolist() == [-2.25 * length]
    assert near.reward.shape == (steps, 1)
    assert np.array_equal(near.action, far.action)


def test_a_simulator_keeps_nothing_of_the_client_before(point, to_the_point):
    simulator = point(3)
    first = run_episode(simulator, to_the_point(0.25, 3))
    run_episode(simulator, to_the_point(9.0, 3))
    assert np.array_equal(run_episode(simulator, to_the_point(0.25, 3)).reward, first.reward)
