"""Environments as simulators: pure functions of seed, params and actions, or a clear sentence."""

import gymnasium
import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Recipe, Seed, step_each
from fedkl.simulators.episodes import EpisodeJob, run_job
from fedkl.simulators.gymnasium import registration
from fedkl.simulators.gymnasium.simulation import Environment, examine
from fedkl.simulators.pool import Workers
from fedkl.simulators.spaces import Numbers

IDS = [
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCarContinuous-v0",
    "LunarLander-v3",
    "BipedalWalker-v3",
    "HalfCheetah-v5",
    "Reacher-v5",
]


@pytest.fixture(autouse=True)
def registered(toys, monkeypatch):
    """Registers the toys, here and in workers."""
    monkeypatch.syspath_prepend(toys)
    __import__("toy_environments")


def actor_for(id, columns, deviation=1.0):
    """Acts at random."""
    facts = examine(id, {})
    size = facts.observation_size
    return Actor(
        weights=(np.full((size, facts.actions.size), 0.01, np.float32),),
        biases=(np.zeros(facts.actions.size, np.float32),),
        deviation=None
        if isinstance(facts.actions, Numbers)
        else np.full(facts.actions.size, deviation, np.float32),
        centre=np.zeros(size, np.float32),
        scale=np.ones(size, np.float32),
        clip=5.0,
        seeds=tuple(Seed((5,), (c,)) for c in range(columns)),
    )


def job_for(id, lengths=(30, 30, 20), params=None, seed=1, refill=True):
    seeds = tuple(Seed((seed,), (c,)) for c in range(len(lengths)))
    return EpisodeJob(seeds, [actor_for(id, len(lengths))], tuple(lengths), refill, params=params)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("id", IDS)
def test_a_job_gives_the_same_bits_in_any_worker_and_after_sixty_episodes(id):
    recipe = Recipe("fedkl.simulators.gymnasium.simulation:Environment", {"id": id})
    job, others = job_for(id), [job_for(id, seed=2 + s, lengths=(25,) * 3) for s in range(20)]
    here = run_job([Environment(id) for _ in range(3)], job)
    assert int(here.mask.sum()) == 80
    workers = Workers(recipe, 60.0, number=2)
    first, *_, again = workers.run([job, *others, job])
    workers.close()
    assert same(here, first)
    assert same(here, again)


@pytest.mark.parametrize("id", IDS)
def test_an_episode_is_gymnasiums_own(id):
    """The same seed and actions give what a fresh environment gives, with all its wrappers."""
    job = job_for(id, lengths=(40,), refill=False)
    done = run_job([Environment(id)], job)
    env = gymnasium.make(id)
    seen, _ = env.reset(seed=job.seeds[0].number())
    space = env.action_space
    for row in range(int(done.mask.sum())):
        np.testing.assert_array_equal(done.observation[row, 0, 0], seen.astype(np.float32))
        action = done.action[row, 0, 0]
        if not isinstance(space, gymnasium.spaces.Discrete):
            middle, reach = (space.high + space.low) / 2, (space.high - space.low) / 2
            action = middle + reach * np.clip(action, -1, 1)
            action = action.astype(space.dtype)
        seen, reward, terminated, _, _ = env.step(action)
        assert done.reward[row, 0, 0] == np.float32(reward)
        assert done.terminated[row, 0, 0] == terminated
    np.testing.assert_array_equal(done.last_observation[0, 0], seen.astype(np.float32))


def test_columns_stepped_at_once_are_what_they_are_one_by_one(monkeypatch):
    for id in ("CartPole-v1", "Pendulum-v1", "toys/Buttons-v0"):
        at_once = run_job([Environment(id) for _ in range(3)], job_for(id))
        with monkeypatch.context() as patch:
            patch.setattr(Environment, "step_all", lambda self, *args: step_each(*args))
            assert same(at_once, run_job([Environment(id) for _ in range(3)], job_for(id)))


def test_observations_may_be_as_large_as_numbers_are():
    """Also where the sum of their squares is not finite."""
    done = run_job([Environment("toys/Huge-v0") for _ in range(2)], job_for("toys/Huge-v0", (5, 5)))
    assert done.observation[3, 0].tolist() == [np.float32([3e38, -3e38]).tolist()] * 2


def test_a_policys_own_action_is_kept_and_only_the_environment_sees_it_clipped():
    done = run_job([Environment("Pendulum-v1")], job_for("Pendulum-v1", (60,)))
    assert np.abs(done.action).max() > 1.5


def test_an_observation_is_not_changed_by_what_comes_later():
    """MountainCarContinuous returns its own state."""
    env = Environment("MountainCarContinuous-v0")
    first = env.reset(Seed((1,)))
    kept = first.copy()
    second = env.step(np.ones((1, 1), np.float32)).observation
    before = second.copy()
    env.step(np.ones((1, 1), np.float32))
    assert np.array_equal(first, kept)
    assert np.array_equal(second, before)


def test_a_limit_of_the_environments_own_truncates():
    done = run_job([Environment("toys/Cuts-v0")], job_for("toys/Cuts-v0", (8,)))
    assert np.flatnonzero(done.truncated[:, 0, 0]).tolist() == [2, 5]
    assert not done.terminated.any()
    assert done.mask.all()
    assert (done.after[[2, 5]] != 0).all()


def test_a_wrapper_of_the_registration_truncates_too():
    done = run_job([Environment("toys/Short-v0")], job_for("toys/Short-v0", (20,)))
    assert np.flatnonzero(done.truncated[:, 0, 0]).tolist() == [6, 13]


@pytest.mark.parametrize(
    ("id", "size"), [("toys/Dict-v0", 5), ("toys/Discrete-v0", 4), ("FrozenLake-v1", 16)]
)
def test_observations_that_are_made_of_vectors_are_vectors(id, size):
    assert examine(id, {}).observation_size == size
    done = run_job([Environment(id) for _ in range(2)], job_for(id, (6, 6)))
    assert done.observation.shape == (6, 1, 2, size)


def test_discrete_actions_begin_where_the_space_does():
    done = run_job([Environment("toys/Buttons-v0")], job_for("toys/Buttons-v0", (40,)))
    assert set(done.action.ravel().tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Raise", "raised ZeroDivisionError: the toy's own, in step 3 of an episode"),
        ("Nan", "returned an observation that is not finite, in step 3 of an episode"),
        ("Infinite", "returned an observation that is not finite, in step 3 of an episode"),
        (
            "Shape",
            "returned an observation of shape (3,), and its space says (2,), in step 3 of an "
            "episode",
        ),
        ("Reward", "returned a reward of inf, in step 3 of an episode"),
        ("Reset", "raised RuntimeError: cannot stand up, when it was reset"),
    ],
)
@pytest.mark.parametrize("params", [None, {"observation_noise": np.float64(0.1)}])
def test_an_environment_that_fails_is_named_with_what_happened(name, sentence, params):
    id = f"toys/{name}-v0"
    with pytest.raises(UserError) as caught:
        run_job([Environment(id) for _ in range(2)], job_for(id, (5, 5), params))
    said, _, place = str(caught.value).partition(" (/")
    assert said == f"the environment {id} {sentence}"
    assert bool(place) == ("raised" in sentence)
    assert not place or "toys/toy_environments.py, line " in place


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Image", "has image observations"),
        ("Grey", "has image observations"),
        ("Text", "has Text observations"),
        ("Sequence", "has Sequence observations"),
        ("Multidiscrete", "has MultiDiscrete actions"),
        ("Multibinary", "has MultiBinary actions"),
        ("Whole", "has int32 Box actions"),
        ("Make", "cannot be made: ValueError: no legs"),
    ],
)
def test_what_a_policy_cannot_see_or_do_is_refused(name, sentence):
    with pytest.raises(UserError) as caught:
        examine(f"toys/{name}-v0", {})
    assert str(caught.value).startswith(f"world.id: the environment toys/{name}-v0 {sentence}")


def test_an_unknown_environment_may_leave_traces_in_itself():
    """Which is why its jobs get fresh ones."""
    env = Environment("toys/Leaks-v0")
    assert [env.reset(Seed((1,)))[0, 0] for _ in range(3)] == [1, 2, 3]
    assert not registration.is_clean(registration.find("toys/Leaks-v0"))


def test_an_environment_that_is_not_a_number_inside_its_policy_is_not_harmed():
    """What the learner then sees is its own business: the action is kept as it is."""
    env = Environment("HalfCheetah-v5")
    env.reset(Seed((1,)))
    step = env.step(np.full((1, 6), np.nan, np.float32))
    assert np.isfinite(step.observation).all()
    assert np.isfinite(step.reward)
