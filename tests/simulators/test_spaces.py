"""Spaces of Gymnasium: what is seen of them, and how one acts in them."""

import numpy as np
import pytest
from gymnasium import spaces

from fedkl.core.errors import UserError
from fedkl.simulators.spaces import Box, Numbers, ObservationFlattener, actions_of, actuator_of

UNIT = spaces.Box(-1.0, 1.0, (2,), np.float32)


# Observations.


def test_an_observation_is_a_copy_in_single_precision():
    given = np.array([0.25, -0.5])
    seen = ObservationFlattener(UNIT, "it")(given)
    given[:] = 9
    assert seen.tolist() == [0.25, -0.5]
    assert seen.dtype == np.float32


@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        (spaces.Discrete(3), 1, [0, 1, 0]),
        (spaces.Discrete(3, start=4), 6, [0, 0, 1]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.Box(-1, 1, (2, 2)), np.array([[0, 1], [-1, 0.5]], np.float32), [0, 1, -1, 0.5]),
        (
            spaces.Dict({"b": spaces.Discrete(2), "a": UNIT}),
            {"a": np.array([0.5, 1], np.float32), "b": 1},
            [0.5, 1, 0, 1],
        ),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), (0, 1), [1, 0, 0, 1]),
    ],
)
def test_what_is_made_of_vectors_is_seen_as_one(space, given, expected):
    sight = ObservationFlattener(space, "it")
    assert sight.size == len(expected)
    assert sorted(sight(given).tolist()) == sorted(expected)
    if not isinstance(space, spaces.Dict):
        assert sight(given).tolist() == expected


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), "image"),
        (spaces.Box(0, 255, (8, 8), np.uint8), "image"),
        (spaces.Box(0, 1, (8, 8, 3)), "image"),
        (spaces.Text(4), "Text"),
        (spaces.Sequence(UNIT), "Sequence"),
        (spaces.Graph(UNIT, None), "Graph"),
        (spaces.Dict({"a": UNIT, "b": spaces.Box(0, 255, (8, 8), np.uint8)}), "image"),
        (spaces.Tuple([UNIT, spaces.Text(4)]), "Text"),
    ],
)
def test_what_is_not_made_of_vectors_is_refused_with_what_is_allowed(space, kind):
    with pytest.raises(UserError) as caught:
        ObservationFlattener(space, "the toy")
    assert str(caught.value).startswith(f"the toy has {kind} observations (")
    assert "fedkl takes vectors (Box)" in str(caught.value)


@pytest.mark.parametrize(
    ("space", "given", "sentence"),
    [
        (UNIT, np.zeros(3), r"shape \(3,\), and its space says \(2,\)"),
        (UNIT, np.zeros((1, 2)), r"shape \(1, 2\), and its space says \(2,\)"),
        (spaces.Box(-1, 1, (2, 2)), np.zeros(4), r"shape \(4,\), and its space says \(2, 2\)"),
        (UNIT, np.array([0, np.nan]), "not finite"),
        (UNIT, np.array([0, -np.inf]), "not finite"),
        (spaces.Discrete(3), 3, "not in its space"),
        (spaces.Dict({"a": UNIT}), {"b": np.zeros(2, np.float32)}, "not in its space"),
    ],
)
def test_an_observation_must_be_of_its_space_and_finite(space, given, sentence):
    with pytest.raises(UserError, match=f"^the toy returned an observation .*{sentence}"):
        ObservationFlattener(space, "the toy")(given)


def test_large_observations_are_finite_too():
    assert ObservationFlattener(UNIT, "it")(np.array([3e38, -3e38])).max() > 2e38


# Actions.


def test_actions_from_minus_one_to_one_are_all_that_motors_can_do():
    low, high = (np.array(ends, np.float32) for ends in ([-2, 0, -0.4], [2, 10, 0.4]))
    space = spaces.Box(low, high)
    act = actuator_of(space, "it")
    for given, expected in (([-1, -1, -1], [-2, 0, -0.4]), ([0, 0, 0], [0, 5, 0])):
        np.testing.assert_allclose(act(np.array(given, np.float32)), expected, atol=1e-7)
    np.testing.assert_allclose(act(np.array([0.5, 0.5, 0.5], np.float32)), [1, 7.5, 0.2])
    for beyond in (1.0, 7.0, np.inf):
        there = act(np.full(3, beyond, np.float32))
        assert np.array_equal(there, space.high)
        assert space.contains(there)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        # As they are, scaled, moved, and both.
        ([-1, -1], [1, 1], [0.5, -0.25]),
        ([-2, -1], [2, 1], [1, -0.25]),
        ([0, 0], [2, 2], [1.5, 0.75]),
        ([0, -2], [4, 2], [3, -0.5]),
    ],
)
def test_several_actions_at_once_are_what_each_would_be(low, high, expected):
    act = actuator_of(spaces.Box(np.array(low, np.float32), np.array(high, np.float32)), "it")
    given = np.array([0.5, -0.25], np.float32)
    for several in (1, 3, 2, 5):
        actions = np.tile(given, (several, 1))
        assert act(actions).tolist() == [expected] * several
        assert actions.tolist() == [given.tolist()] * several
    assert act(given).tolist() == expected


def test_what_is_not_a_number_becomes_one_of_the_limits():
    space = spaces.Box(-2, 2, (2,), np.float32)
    assert space.contains(actuator_of(space, "it")(np.full(2, np.nan, np.float32)))


def test_what_is_not_bounded_is_left_as_it_is():
    space = spaces.Box(np.array([-np.inf, 0.0]), np.array([np.inf, np.inf]), dtype=np.float64)
    acted = actuator_of(space, "it")(np.array([-7, -3], np.float32))
    assert acted.tolist() == [-7, 0]
    assert acted.dtype == np.float64


def test_actions_have_the_shape_of_their_space_one_or_several():
    act = actuator_of(spaces.Box(-1, 1, (2, 2)), "it")
    assert act(np.zeros(4, np.float32)).shape == (2, 2)
    assert act(np.zeros((5, 4), np.float32)).shape == (5, 2, 2)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_discrete_actions_begin_where_their_space_does(dtype):
    space = spaces.Discrete(3, start=5, dtype=dtype)
    assert [space.contains(actuator_of(space, "it")(a)) for a in np.arange(3)] == [True] * 3
    assert actuator_of(space, "it")(np.arange(3)).tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.MultiDiscrete([2, 3]), "MultiDiscrete"),
        (spaces.MultiBinary(2), "MultiBinary"),
        (spaces.Box(0, 5, (2,), np.int32), "int32 Box"),
        (spaces.Dict({"a": UNIT}), "Dict"),
    ],
)
def test_other_actions_are_refused_with_what_is_allowed(space, kind):
    with pytest.raises(UserError) as caught:
        actuator_of(space, "the toy")
    assert str(caught.value).startswith(f"the toy has {kind} actions (")
    assert "fedkl takes Box actions of real numbers, and Discrete ones" in str(caught.value)


def test_what_a_policy_does_in_a_space_is_said_without_gymnasium():
    assert actions_of(spaces.Discrete(4, start=2), "it") == Numbers(4, 2, "int64")
    assert actions_of(spaces.Box(-1, 1, (1, 2)), "it") == Box((-1, -1), (1, 1), (1, 2))
