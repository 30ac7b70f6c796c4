"""Columns of episodes: what is kept of them, and that entries which do not count are nothing."""

import numpy as np
import pytest

from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Recipe, Seed
from fedkl.simulators.episodes import EpisodeJob, run_job


@pytest.fixture
def make(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)
    return lambda name, **arguments: Recipe(f"toy_simulators:{name}", arguments).make()


@pytest.fixture
def walk(make):
    return lambda **arguments: make("Walk", **arguments)


@pytest.fixture
def to_the_point(linear):
    """Makes jobs for an agent that always acts with 0.5."""

    def make(target, steps):
        params = {"target": np.float32(target)}
        return EpisodeJob((Seed((4,)),), [linear(0.5, [0.0])], (steps,), params=params)

    return make


@pytest.fixture
def job(linear):
    actors = [linear(0.5, [1.0, -2.0], 0.1, Seed((n,))) for n in range(2)]
    return EpisodeJob((Seed((4,)),), actors, (8,))


@pytest.fixture
def several(linear):
    """Makes jobs of two agents with columns of these lengths."""

    def make(lengths, refill=True):
        columns = range(len(lengths))
        actors = [
            linear(0.5, [1.0, -2.0], 0.1, *[Seed((n,), (c,)) for c in columns]) for n in range(2)
        ]
        return EpisodeJob(tuple(Seed((4,), (c,)) for c in columns), actors, tuple(lengths), refill)

    return make


def one_of(job, c):
    """The job of one column alone."""
    actors = [actor._replace(seeds=actor.seeds[c : c + 1]) for actor in job.actors]
    return job._replace(seeds=job.seeds[c : c + 1], lengths=job.lengths[c : c + 1], actors=actors)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# One episode.


def test_an_episode_that_is_cut_off_is_whole_and_did_not_end(walk, job):
    episode = run_job([walk()], job)
    assert episode.mask.all()
    assert not episode.terminated.any()
    assert not episode.truncated.any()
    assert episode.observation.shape == (8, 2, 1, 2)
    assert episode.action.shape == (8, 2, 1, 1)
    assert episode.last_observation.shape == (2, 1, 2)
    assert episode.pictures is None
    assert episode.after is None


def test_nothing_is_kept_after_a_true_end(walk, job):
    episode = run_job([walk(ends=5)], job)
    assert episode.mask[:, 0, 0].tolist() == [True] * 5 + [False] * 3
    assert episode.terminated[:, 1, 0].tolist() == [False] * 4 + [True] + [False] * 3
    for array in (episode.observation, episode.action, episode.reward):
        assert np.all(array[:5] != 0)
        assert np.all(array[5:] == 0)


def test_an_end_in_the_last_step_is_an_end(walk, job):
    for ends, expected in ((8, [False] * 7 + [True]), (9, [False] * 8)):
        assert run_job([walk(ends=ends)], job).terminated[:, 0, 0].tolist() == expected


def test_an_end_takes_nothing_from_what_came_before(walk, job):
    whole, short = run_job([walk()], job), run_job([walk(ends=5)], job)
    for a, b in zip(whole[:3], short[:3], strict=True):
        assert np.array_equal(a[:5], b[:5])
    assert np.array_equal(short.last_observation, whole.observation[5])


def test_a_step_is_seen_acted_and_rewarded_in_its_own_row(walk, job):
    """The toy's reward is the sum of the observation that a step leads to."""
    episode = run_job([walk()], job)
    after = np.concatenate([episode.observation[1:], episode.last_observation[None]])
    np.testing.assert_allclose(episode.reward, after.sum(axis=-1), rtol=1e-6)
    mean = 0.5 + episode.observation @ np.array([[1.0], [-2.0]])
    noise = (episode.action - mean) / 0.1
    assert 0 < np.abs(noise).max() < 4
    np.testing.assert_allclose(episode.returns(), episode.reward.sum(axis=0), rtol=1e-6)


def test_pictures_are_those_of_the_start_and_of_every_step(walk, job):
    episode = run_job([walk(ends=5)], job._replace(pictures=True))
    assert episode.pictures.shape == (6, 4)
    assert np.array_equal(episode.pictures[:5].reshape(5, 2, 2), episode.observation[:5, :, 0])


def test_the_same_job_gives_the_same_bits(walk, job):
    simulator = walk()
    first = run_job([simulator], job)
    run_job([simulator], job._replace(seeds=(Seed((5,)),)))
    assert same(first, run_job([simulator], job))


def test_agents_and_actors_must_be_as_many(walk, job):
    with pytest.raises(ValueError, match="2 actors for 3 agents"):
        run_job([walk(agents=3)], job)


@pytest.mark.parametrize(("steps", "length"), [(1, 1), (4, 4), (4, 2)])
def test_params_are_what_makes_the_same_simulator_another_clients(
    make, to_the_point, steps, length
):
    simulator = make("Point", length=length)
    near, far = (run_job([simulator], to_the_point(target, steps)) for target in (1.0, -1.0))
    # -(0.5 - 1)^2 and -(0.5 + 1)^2 in each of the steps.
    assert near.returns().tolist() == [[-0.25 * length]]
    assert far.returns().tolist() == [[-2.25 * length]]
    assert near.reward.shape == (steps, 1, 1)
    assert np.array_equal(near.action, far.action)


def test_a_simulator_keeps_nothing_of_the_client_before(make, to_the_point):
    simulator = make("Point", length=3)
    first = run_job([simulator], to_the_point(0.25, 3))
    run_job([simulator], to_the_point(9.0, 3))
    assert np.array_equal(run_job([simulator], to_the_point(0.25, 3)).reward, first.reward)


# Several columns.


@pytest.mark.parametrize("refill", [False, True])
@pytest.mark.parametrize("lengths", [(8, 8, 8, 5), (8, 5, 2, 1), (2, 8, 5, 5), (1, 2, 3, 8)])
def test_a_column_is_what_it_would_be_alone(walk, several, lengths, refill):
    job = several(lengths, refill)
    together = run_job([walk(ends=3) for _ in range(4)], job)
    for c, length in enumerate(job.lengths):
        alone = run_job([walk(ends=3)], one_of(job, c))
        for name in ("observation", "action", "reward", "terminated", "mask"):
            among = getattr(together, name)[:length, :, c]
            assert np.array_equal(among, getattr(alone, name)[:, :, 0])
        assert np.array_equal(together.last_observation[:, c], alone.last_observation[:, 0])
    assert len(set(together.observation[0, 0, :, 0].tolist())) == 4


def test_without_refilling_a_column_ends_with_its_episode(walk, several):
    done = run_job([walk(ends=3), walk(), walk(ends=5)], several([8, 6, 8], refill=False))
    assert done.mask.sum(axis=0).tolist() == [[3, 6, 5]] * 2
    assert done.terminated.sum(axis=0).tolist() == [[1, 0, 1]] * 2


def test_a_column_that_is_filled_has_exactly_its_steps(walk, several):
    done = run_job([walk(ends=3) for _ in range(3)], several([8, 3, 1]))
    assert done.mask.sum(axis=0).tolist() == [[8, 3, 1]] * 2
    ends = [np.flatnonzero(done.terminated[:, 0, c]).tolist() for c in range(3)]
    assert ends == [[2, 5], [2], []]
    # The rows of an end are followed by a first observation, and not by what the end led to.
    assert np.abs(done.observation[[0, 3, 6], :, 0]).max() > 1  # tanh is below 1 after a step
    np.testing.assert_allclose(
        done.last_observation[:, 1].sum(axis=-1), done.reward[2, :, 1], rtol=1e-6
    )


def test_every_episode_of_a_column_has_a_seed_of_its_own(walk, several):
    done = run_job([walk(ends=2)], several([8]))
    first = done.observation[::2, 0, 0, 0].tolist()
    assert len(set(first)) == 4
    again = walk()
    starts = [again.reset(Seed((4,), (0,)))] + [
        again.reset(Seed((4,), (0, 2, k))) for k in (1, 2, 3)
    ]
    assert first == [start[0, 0] for start in starts]


def test_a_simulators_own_limit_is_not_an_end_and_what_came_after_it_is_kept(walk, several):
    done = run_job([walk(cuts=3)], several([8]))
    assert not done.terminated.any()
    assert np.flatnonzero(done.truncated[:, 0, 0]).tolist() == [2, 5]
    # The toy's reward is the sum of the observation that a step leads to.
    np.testing.assert_allclose(done.after[[2, 5]].sum(axis=-1), done.reward[[2, 5]], rtol=1e-6)
    assert np.all(done.after[[0, 1, 3, 4, 6, 7]] == 0)
    assert done.mask.all()


def test_a_true_end_at_the_limit_is_an_end(walk, several):
    done = run_job([walk(ends=3, cuts=3)], several([8]))
    assert np.flatnonzero(done.terminated[:, 0, 0]).tolist() == [2, 5]
    assert not done.truncated.any()
    assert done.after is None


def test_an_agent_that_is_gone_counts_for_nothing_until_the_next_episode(walk, several):
    done = run_job([walk(leaves=(2, 4))], several([7]))
    assert done.mask[:, :, 0].T.tolist() == [
        [True, True, False, False, True, True, False],
        [True, True, True, True, True, True, True],
    ]
    assert done.terminated[:, :, 0].T.tolist() == [
        [False, True, False, False, False, True, False],
        [False, False, False, True, False, False, False],
    ]
    assert np.all(done.reward[~done.mask] == 0)
    alone = run_job([walk(leaves=(2, 4))], several([7], refill=False))
    assert alone.mask[:, :, 0].sum(axis=0).tolist() == [2, 4]


def test_discrete_actions_are_whole_numbers_in_columns(make):
    actor = Actor(
        weights=(np.zeros((1, 3), np.float32),),
        biases=(np.zeros(3, np.float32),),
        deviation=None,
        centre=np.zeros(1, np.float32),
        scale=np.ones(1, np.float32),
        clip=np.inf,
        seeds=(Seed((1,)), Seed((2,))),
    )
    job = EpisodeJob((Seed((3,)), Seed((4,))), [actor], (40, 10), refill=True)
    done = run_job([make("Buttons"), make("Buttons")], job)
    assert done.action.shape == (40, 1, 2)
    assert done.action.dtype == np.int32
    assert set(done.action[:, 0, 0].tolist()) == {0, 1, 2}
    assert np.array_equal(done.reward, np.where(done.mask, done.action, 0))
