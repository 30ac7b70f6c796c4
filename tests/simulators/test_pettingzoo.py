"""PettingZoo's environments as simulators: agents in their order, gone when they are gone."""

from pathlib import Path

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.base import Recipe, Seed
from fedkl.simulators.episodes import EpisodeJob, run_job
from fedkl.simulators.pettingzoo import ParallelEnvironment, examine
from fedkl.simulators.pool import Workers
from fedkl.simulators.spaces import Box, Numbers

TOY = Path(__file__).parent / "toys" / "toy_parallel.py"
SPREAD = "mpe2.simple_spread_v3"


@pytest.fixture(autouse=True)
def importable(toys, monkeypatch):
    monkeypatch.syspath_prepend(toys)


@pytest.fixture
def job(linear):
    actors = [linear(0.2, [0.5, -0.5], 0.3, Seed((n,))) for n in range(3)]
    return EpisodeJob((Seed((4,)),), actors, (6,))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_it_is_known_by_what_it_says():
    assert examine("toy_parallel", {}) == (3, 2, Box((-1.0,), (1.0,), (1,)), 6)
    assert examine("toy_parallel", {"leaves": [1, 2], "limit": False})[:2] == (2, 2)
    assert examine(SPREAD, {}) == (3, 18, Numbers(5), 25)
    vectors = Box((0.0,) * 5, (1.0,) * 5, (5,))
    assert examine(SPREAD, {"continuous_actions": True, "N": 2}) == (2, 12, vectors, 25)


def test_agents_are_numbered_as_in_possible_agents_and_leave_one_by_one(job):
    """The toy's first agent leaves after 2 steps, the second after 4, the third after 3."""
    done = run_job([ParallelEnvironment("toy_parallel")], job)
    assert done.mask[:, :, 0].sum(axis=0).tolist() == [2, 4, 3]
    assert [np.flatnonzero(done.terminated[:, n, 0]).tolist() for n in range(3)] == [[1], [3], [2]]
    assert not done.truncated.any()
    # An agent is paid the sum of what it sees after its step.
    np.testing.assert_allclose(done.reward[0, :, 0], done.observation[1, :, 0].sum(-1), rtol=1e-5)


def test_who_is_gone_waits_for_the_next_episode(job):
    done = run_job([ParallelEnvironment("toy_parallel")], job._replace(refill=True))
    assert done.mask[:, 0, 0].tolist() == [True, True, False, False, True, True]
    assert done.mask[:, 1, 0].all()
    assert np.all(done.observation[4] != 0)


def test_those_that_are_cut_off_did_not_end(job):
    done = run_job([ParallelEnvironment("toy_parallel", {"cuts": 3})], job)
    assert [np.flatnonzero(done.terminated[:, n, 0]).tolist() for n in range(3)] == [[1], [], [2]]
    assert [np.flatnonzero(done.truncated[:, n, 0]).tolist() for n in range(3)] == [[], [2], []]
    assert (done.after[2, 1, 0] != 0).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"what": "raise"},
            f"raised KeyError: 'lost', in step 2 of an episode ({TOY}, line 50, in step)",
        ),
        ({"what": "nan"}, "returned an observation that is not finite, in step 2 of an episode"),
    ],
)
def test_an_environment_that_fails_is_named_with_what_happened(job, arguments, sentence):
    with pytest.raises(UserError) as caught:
        run_job([ParallelEnvironment("toy_parallel", arguments)], job)
    assert str(caught.value) == f"the environment toy_parallel {sentence}"


@pytest.mark.parametrize(
    ("module", "arguments", "sentence"),
    [
        ("toy_parallel", {"unequal": "seen"}, "has agents with different spaces (walker_2 and wal"),
        ("toy_parallel", {"unequal": "acted"}, "has agents with different spaces"),
        ("mpe2.simple_tag_v3", {}, "has agents with different spaces"),
        ("toy_parallel", {"nameless": True}, "names no agents in possible_agents"),
        ("toy_parallel", {"leaves": []}, "names no agents in possible_agents"),
        ("toy_parallel", {"nope": 1}, "cannot be made: TypeError"),
        ("no_such_module", {}, "no_such_module cannot be imported: ModuleNotFoundError"),
        ("toy_simulators", {}, "toy_simulators has no parallel_env, which PettingZoo's have"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(module, arguments, sentence):
    with pytest.raises(UserError) as caught:
        examine(module, arguments)
    assert str(caught.value).startswith("world.module: ")
    assert sentence in str(caught.value)


def test_a_job_gives_the_same_bits_in_any_worker_after_many_others(linear):
    facts = examine(SPREAD, {})
    chooser = linear(0.0, [0.0] * 18)._replace(
        weights=(np.full((18, facts.actions.size), 0.01, np.float32),),
        biases=(np.zeros(facts.actions.size, np.float32),),
        deviation=None,
    )
    actors = [chooser._replace(seeds=(Seed((n,)),)) for n in range(3)]
    jobs = [EpisodeJob((Seed((s,)),), actors, (40,), refill=True) for s in range(6)]
    recipe = Recipe("fedkl.simulators.pettingzoo:ParallelEnvironment", {"module": SPREAD})
    workers = Workers(recipe, 60.0, number=2)
    first, *_, again = workers.run([*jobs, jobs[0]])
    workers.close()
    assert same(first, again)
    assert np.flatnonzero(first.truncated[:, 0, 0]).tolist() == [24]
    assert first.mask.all()
    assert first.action.dtype == np.int32
