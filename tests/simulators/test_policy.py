"""A policy that acts: numbers by hand, samples, one and several observations, bad ones."""

from pathlib import Path

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.actors import Actor
from fedkl.simulators.policy import Policy
from fedkl.simulators.spaces import Box, Numbers, Spaces


def actor(outputs, deviation=None):
    """Sees (x - 1) / 2 of two numbers, up to 3, and gives output k the k-fold of their sum."""
    return Actor(
        weights=(np.tile(np.arange(1.0, outputs + 1, dtype=np.float32), (2, 1)),),
        biases=(np.zeros(outputs, np.float32),),
        deviation=None if deviation is None else np.full(outputs, deviation, np.float32),
        centre=np.ones(2, np.float32),
        scale=np.full(2, 2.0, np.float32),
        clip=3.0,
    )


@pytest.fixture
def continuous():
    return Policy(actor(2, 0.5), Spaces(2, Box.unlimited(2)), 7)


@pytest.fixture
def discrete():
    """Prefers its last action if the sum is positive, the first if it is negative."""
    return Policy(actor(3), Spaces(2, Numbers(3, first=5)), 7)


def test_an_observation_is_standardised_clipped_and_answered(continuous):
    # (2 - 1) / 2 + (4 - 1) / 2 = 2, and (-99 - 1) / 2 is clipped to -3.
    assert continuous([2, 4]).tolist() == [2.0, 4.0]
    assert continuous(np.array([-99.0, 4.0])).tolist() == [-1.5, -3.0]
    assert continuous([2, 4]).dtype == np.float32


def test_discrete_actions_begin_where_the_environments_do(discrete):
    assert discrete([3, 3]) == 7
    assert discrete([-3, -3]) == 5
    assert isinstance(discrete([3, 3]), np.integer)


def test_actions_keep_the_limits_and_the_shape_of_their_box():
    box = Box((-2.0, 0.0), (2.0, 10.0), (1, 2))
    policy = Policy(actor(2, 0.1), Spaces(2, box), 7)
    # The network gives 0.25 and 0.5: an eighth and a quarter of the way up from the middle.
    assert policy([1.5, 1]).tolist() == [[0.5, 7.5]]
    assert policy([9, 9]).tolist() == [[2.0, 10.0]]
    assert policy([[9, 9], [-9, -9]]).tolist() == [[[2.0, 10.0]], [[-2.0, 0.0]]]


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
@pytest.mark.parametrize("several", [0, 1, 2, 5])
def test_several_observations_are_answered_as_each_would_be(request, kind, several):
    policy = request.getfixturevalue(kind)
    seen = np.random.default_rng(several).normal(size=(several, 2))
    actions = policy(seen)
    assert len(actions) == several
    assert all(np.array_equal(one, policy(o)) for one, o in zip(actions, seen, strict=True))


def test_an_action_is_the_callers_own(continuous):
    first = continuous([2, 4])
    continuous([1, 1])
    assert first.tolist() == [2.0, 4.0]


def test_samples_have_the_policys_deviation_around_its_mode(continuous):
    samples = continuous(np.tile([2, 4], (20_000, 1)), deterministic=False, key=0)
    assert samples.mean(axis=0) == pytest.approx([2, 4], abs=0.02)
    assert samples.std(axis=0) == pytest.approx([0.5, 0.5], rel=0.03)


def test_discrete_samples_come_as_often_as_their_logits_say(discrete):
    # The sum is 0.5: logits 0.5, 1 and 1.5.
    shares = np.exp([0.5, 1.0, 1.5]) / np.exp([0.5, 1.0, 1.5]).sum()
    samples = discrete(np.tile([1.5, 1.5], (20_000, 1)), deterministic=False, key=1)
    assert np.bincount(samples - 5) / 20_000 == pytest.approx(shares, abs=0.012)


def test_the_same_key_gives_the_same_sample_and_none_another_each_time(continuous):
    def sample(key=None):
        return continuous([2, 4], deterministic=False, key=key).tolist()

    assert sample(3) == sample(np.int64(3)) == sample(np.random.default_rng(3)) != sample(4)
    assert sample(np.array([1, 2], np.uint32)) == sample(np.array([1, 2], np.uint32))
    assert sample() != sample()
    generator = np.random.default_rng(3)
    assert sample(generator) != sample(generator)


@pytest.mark.parametrize("key", [-1, "three", 1.5])
def test_what_is_no_key_is_refused(continuous, key):
    with pytest.raises(UserError, match="key must be a whole number"):
        continuous([2, 4], deterministic=False, key=key)


@pytest.mark.parametrize(
    ("observation", "sentence"),
    [
        ([1, 2, 3], r"has 2 numbers .* this one the shape \(3,\)"),
        (5, r"this one the shape \(\)"),
        (np.zeros((2, 3)), r"this one the shape \(2, 3\)"),
        (np.zeros((1, 1, 2)), r"this one the shape \(1, 1, 2\)"),
        ([], r"this one the shape \(0,\)"),
        ([1, np.nan], "must be finite, and entry 1 is nan"),
        ([[1, 2], [-np.inf, 2]], "entry 0 of number 1 is -inf"),
        ([1, 1e300], "entry 1 is inf"),
        (["left", "right"], "must be real numbers"),
        ({"x": 1}, "must be real numbers"),
        ([[1, 2], [1]], "must be real numbers"),
        (np.zeros(2, complex), "must be real numbers: these are of the type complex128"),
        (["1", "2"], "must be real numbers"),
        ([10**400, 0], "must be real numbers"),
    ],
)
def test_what_is_no_observation_is_refused_in_a_sentence(continuous, observation, sentence):
    with pytest.raises(UserError, match=sentence):
        continuous(observation)


@pytest.mark.parametrize("deterministic", ["no", None, 0])
def test_what_is_neither_true_nor_false_does_not_count_as_one(continuous, deterministic):
    with pytest.raises(UserError, match="deterministic must be True or False, not "):
        continuous([1, 2], deterministic=deterministic)


def test_a_policy_says_what_it_is(continuous, discrete):
    assert repr(continuous) == (
        "<Policy after round 7: sees 2 numbers, gives an action of 2 numbers>"
    )
    assert repr(discrete) == "<Policy after round 7: sees 2 numbers, gives one of 3 actions>"
    from_run = Policy(discrete.actor, discrete.spaces, 7, Path("runs/a"))
    assert repr(from_run).startswith("<Policy of runs/a after round 7: ")
