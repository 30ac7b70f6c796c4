"""How parameters are drawn: by hand, and whatever the numbers."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.core.errors import UserError
from fedkl.worlds import draws
from fedkl.worlds.parameters import INITIAL_STATE, Parameter

KEY = jax.random.key(0)
GRAVITY = Parameter("gravity", 9.8)
MASS = Parameter("mass", 1.0, 0.001, 10.0)
OFFSET = Parameter("offset", (0.0, 0.0))
DELAY = Parameter("delay", 0, 0, 16, whole=True)
WIDTH = Parameter("width", 600, whole=True)


def drawn(value, n, parameter=GRAVITY, key=KEY, dtype=np.float64):
    draw = draws.read("world.clients.x", value)
    draws.check("world.clients.x", draw, parameter)
    return draws.drawn(draw, parameter, n, key, dtype)


@pytest.mark.parametrize(
    ("value", "parameter", "expected"),
    [
        (7, GRAVITY, [7, 7, 7, 7]),
        ([5, 6, 7], GRAVITY, [5, 6, 7, 5]),
        ({"values": [5, 6, 7]}, GRAVITY, [5, 6, 7, 5]),
        ({"linspace": [4, 10]}, GRAVITY, [4, 6, 8, 10]),
        ({"linspace": [10, 4]}, GRAVITY, [10, 8, 6, 4]),
        ({"uniform": [3, 3]}, GRAVITY, [3, 3, 3, 3]),
        ({"normal": [3, 0]}, GRAVITY, [3, 3, 3, 3]),
        ({"choice": [8]}, GRAVITY, [8, 8, 8, 8]),
        (0.5, OFFSET, [[0.5, 0.5]] * 4),
        ([1, 2], OFFSET, [[1, 1], [2, 2], [1, 1], [2, 2]]),
        ([[1, 2], [3, 4]], OFFSET, [[1, 2], [3, 4], [1, 2], [3, 4]]),
        ({"linspace": [0, 3]}, OFFSET, [[0, 0], [1, 1], [2, 2], [3, 3]]),
        ({"linspace": [[0, 1], [3, 1]]}, OFFSET, [[0, 1], [1, 1], [2, 1], [3, 1]]),
        ({"linspace": [[0, 3], 3]}, OFFSET, [[0, 3], [1, 3], [2, 3], [3, 3]]),
        ({"linspace": [0, 5]}, DELAY, [0, 2, 3, 5]),
        (np.float32(7), GRAVITY, [7, 7, 7, 7]),
        (np.array([5, 6]), GRAVITY, [5, 6, 5, 6]),
        ((5, 6), GRAVITY, [5, 6, 5, 6]),
    ],
)
def test_what_follows_from_the_clients_number_alone(value, parameter, expected):
    np.testing.assert_allclose(drawn(value, 4, parameter), expected)


def test_one_client_alone_has_the_middle_of_a_range():
    assert drawn({"linspace": [4, 10]}, 1).tolist() == [7]


@pytest.mark.parametrize(
    ("value", "mean", "deviation"),
    [
        ({"uniform": [7, 13]}, 10, 6 / np.sqrt(12)),
        ({"normal": [10, 2]}, 10, 2),
        ({"choice": [2, 4]}, 3, 1),
        # Of e^x, x uniform between 0 and 1: mean e - 1, square mean (e^2 - 1) / 2.
        ({"loguniform": [1, np.e]}, np.e - 1, np.sqrt((np.e**2 - 1) / 2 - (np.e - 1) ** 2)),
    ],
)
@pytest.mark.parametrize("parameter", [GRAVITY, OFFSET])
def test_draws_have_the_moments_that_they_should(value, mean, deviation, parameter):
    values = drawn(value, 20_000, parameter)
    assert values.shape == (20_000, *parameter.shape)
    np.testing.assert_allclose(values.mean(axis=0), mean, atol=0.03 * deviation)
    np.testing.assert_allclose(values.std(axis=0), deviation, rtol=0.03)
    if parameter.shape:
        assert abs(np.corrcoef(values.T)[0, 1]) < 0.03


def test_a_choice_of_vectors_keeps_their_entries_together():
    values = drawn({"choice": [[1, 10], [2, 20]]}, 200, OFFSET)
    np.testing.assert_array_equal(values[:, 1], 10 * values[:, 0])
    assert set(values[:, 0]) == {1, 2}


def test_whole_numbers_are_drawn_with_both_ends():
    values = drawn({"uniform": [1, 3]}, 3000, DELAY, dtype=np.int32)
    assert values.dtype == np.int32
    np.testing.assert_allclose(np.bincount(values) / 3000, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.04)


def test_whole_numbers_may_be_as_large_as_32_bits_hold():
    largest = 2**31 - 2
    assert drawn(largest, 1, WIDTH, dtype=np.int32).tolist() == [largest]
    found = drawn({"uniform": [-largest, largest]}, 500, WIDTH, dtype=np.int32)
    assert np.ptp(found.astype(np.float64)) > largest


def test_a_normal_draw_is_clipped_around_its_mean():
    free, clipped = (drawn({"normal": [10, 2]} | more, 1000) for more in ({}, {"clip": 1.5}))
    np.testing.assert_array_equal(clipped, np.clip(free, 8.5, 11.5))
    assert free.max() > 11.5


number = st.floats(-1e6, 1e6, allow_subnormal=False)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(number, number).map(sorted),
    st.sampled_from(["uniform", "linspace", "choice", "values"]),
    st.sampled_from([1, 7]),
    st.integers(0, 2**31),
)
def test_draws_stay_in_their_bounds_and_follow_from_the_key(ends, form, n, seed):
    one, two = (drawn({form: ends}, n, key=jax.random.key(seed), dtype=np.float32) for _ in "ab")
    np.testing.assert_array_equal(one, two)
    low, high = np.float32(ends)
    assert (low <= one).all()
    assert (one <= high).all()


def test_log_uniform_draws_over_many_orders_of_magnitude_stay_finite():
    values = drawn({"loguniform": [1e-30, 1e30]}, 1000, dtype=np.float32)
    assert np.isfinite(values).all()
    assert (values > 0).all()
    np.testing.assert_allclose(np.log10(values).std(), 60 / np.sqrt(12), rtol=0.1)


@settings(max_examples=30, deadline=None)
@given(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).map(sorted), st.integers(0, 2**31))
def test_log_uniform_draws_stay_in_their_bounds(ends, seed):
    values = drawn({"loguniform": ends}, 7, key=jax.random.key(seed))
    assert (ends[0] <= values).all()
    assert (values <= ends[1]).all()


@pytest.mark.parametrize(
    "value",
    [
        9,
        [1, 2.5],
        [[1, 2], [3, 4]],
        {"choice": [1, 2]},
        {"uniform": [7.0, 13.0]},
        {"loguniform": [0.1, 10.0]},
        {"normal": [0.0, 0.4], "clip": 1.0},
        {"normal": [0, 0.4], "per": "step"},
        {"linspace": [13, 7]},
        {"boxes": 60},
    ],
)
def test_a_draw_is_written_as_it_was_read(value):
    read = draws.read("x", value)
    assert read.table() == value
    assert draws.read("x", read.table()) == read
    assert hash(read) == hash(draws.read("x", value))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("fast", "x must be a number, a list, or a table with one of values, choice"),
        (True, "x must be a number, a list, or a table"),
        (None, "x must be a number, a list, or a table"),
        (float("nan"), "x must be between -1e30 and 1e30, not nan"),
        (float("inf"), "x must be between -1e30 and 1e30, not inf"),
        (1e300, "x must be between -1e30 and 1e30, not 1e+300"),
        (10**400, "x must be between -1e30 and 1e30, not inf"),
        ([], "x.values must be a list with at least one value, not []"),
        ([1, "a"], "x.values must be made of numbers, or of lists of them, not 'a'"),
        ([[1, "a"]], "x.values must be made of numbers, or of lists of them, not [1, 'a']"),
        ([[]], "x.values must be made of numbers"),
        ([1, float("nan")], "x.values must be between -1e30 and 1e30, not nan"),
        ({}, "x must be drawn by one of values, choice, uniform, loguniform, normal, linspace"),
        ({"unifrom": [1, 2]}, "x must be drawn by one of"),
        ({"uniform": [1, 2], "normal": [0, 1]}, "x must be drawn by one of"),
        ({"uniform": [1, 2], "scale": 3}, "x.scale is not known: beside uniform there may be clip"),
        ({"uniform": [2, 1]}, "x.uniform must be two numbers, the smaller one first, not [2, 1]"),
        ({"uniform": [1]}, "x.uniform must be two numbers, the smaller one first, not [1]"),
        ({"uniform": 3}, "x.uniform must be two numbers, the smaller one first, not 3"),
        ({"uniform": [1, float("inf")]}, "x.uniform must be two numbers"),
        ({"uniform": ["a", "b"]}, "x.uniform must be two numbers"),
        ({"linspace": [1, 2, 3]}, "x.linspace must be two numbers, not [1, 2, 3]"),
        ({"loguniform": [0, 1]}, "x.loguniform must be two numbers above 0, the smaller one first"),
        ({"loguniform": [2, 1]}, "x.loguniform must be two numbers above 0, the smaller one first"),
        ({"normal": [0, -1]}, "x.normal must be a mean and a deviation of at least 0, not [0, -1]"),
        ({"uniform": [0, 1], "clip": 1}, "x.clip goes with a normal draw, not with uniform"),
        ({"normal": [0, 1], "clip": 0}, "x.clip must be a number above 0, not 0"),
        ({"normal": [0, 1], "clip": "a"}, "x.clip must be a number above 0, not 'a'"),
        ({"normal": [0, 1], "per": "round"}, "x.per must be client or step, not 'round'"),
        ({"boxes": 0}, "x.boxes must be a whole number of at least 1, not 0"),
        ({"boxes": 2.5}, "x.boxes must be a whole number of at least 1, not 2.5"),
        ({"boxes": True}, "x.boxes must be a whole number of at least 1, not True"),
    ],
)
def test_a_wrong_form_is_told_in_one_sentence(value, sentence):
    with pytest.raises(UserError) as caught:
        draws.read("x", value)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "parameter", "sentence"),
    [
        (0, MASS, "x must be at least 0.001 and at most 10, not 0"),
        ([1, 20], MASS, "x must be at least 0.001 and at most 10, not 20"),
        ({"uniform": [0, 1]}, MASS, "x must be at least 0.001 and at most 10, not 0"),
        ({"linspace": [1, 11]}, MASS, "x must be at least 0.001 and at most 10, not 11"),
        ({"normal": [1, 0.1]}, MASS, "x must be at least 0.001 and at most 10, and a normal draw"),
        ({"normal": [1, 0.1], "clip": 1}, MASS, "x must be at least 0.001 and at most 10, not 0"),
        ([[1, 2]], MASS, "x must be made of numbers, not of lists such as [1, 2]"),
        ([[1, 2, 3]], OFFSET, "x must have 2 entries for a client, not 3"),
        (1.5, DELAY, "x must be a whole number, not 1.5"),
        (17, DELAY, "x must be at least 0 and at most 16, not 17"),
        ({"normal": [1, 1], "clip": 1}, DELAY, "x must be a whole number, and a normal draw"),
        ({"loguniform": [1, 2]}, DELAY, "x must be a whole number, and a loguniform draw"),
        (3_000_000_000, WIDTH, "x must be between -2147483646 and 2147483646, not 3000000000"),
        ({"uniform": [0, 2**31 - 1]}, WIDTH, "x must be between -2147483646 and 2147483646, not"),
        ([1, 10**25], WIDTH, "x must be between -2147483646 and 2147483646, not 1e+25"),
        ({"boxes": 3}, MASS, "x cannot be { boxes = 3 }: boxes are of initial_state"),
        (3, INITIAL_STATE, "x cannot be 3: it must be { boxes = Q }"),
    ],
)
def test_what_a_word_does_not_allow_is_told_in_one_sentence(value, parameter, sentence):
    draw = draws.read("x", value)
    with pytest.raises(UserError) as caught:
        draws.check("x", draw, parameter)
    assert str(caught.value).startswith(sentence)


def test_a_clip_makes_a_normal_draw_of_a_word_with_limits_possible():
    values = drawn({"normal": [1, 5], "clip": 0.5}, 100, MASS)
    assert values.min() == 0.5
    assert values.max() == 1.5


@given(st.integers(1, 200), st.integers(1, 100))
def test_boxes_are_spread_evenly_over_clients(n, boxes):
    which = draws.spread_evenly(n, boxes)
    assert which.min() >= 0
    assert which.max() < boxes
    counts = np.bincount(which, minlength=boxes)
    assert counts.max() - counts.min() <= 1
