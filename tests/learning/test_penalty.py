"""Thresholds at 1.1, factors of 2, and bounds."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkl.core.errors import UserError
from fedkl.learning.penalty import Coefficient, check_bounds, towards_target

WIDE = (0.0, jnp.inf)


def adapted(coefficient, measured, target, bounds=WIDE):
    return float(towards_target(jnp.float32(coefficient), jnp.float32(measured), target, bounds))


@pytest.mark.parametrize(
    ("measured", "factor"),
    [
        (0.0, 0.5),
        (0.0909, 0.5),  # just below 0.1 / 1.1 = 0.090909...
        (0.0910, 1.0),
        (0.1, 1.0),
        (0.1099, 1.0),
        (0.1101, 2.0),  # just above 0.1 * 1.1
        (float("inf"), 2.0),
    ],
)
def test_halves_below_the_target_and_doubles_above_with_a_tenth_of_slack(measured, factor):
    assert adapted(0.8, measured, 0.1) == pytest.approx(0.8 * factor)


@pytest.mark.parametrize(
    ("measured", "start", "end"), [(0.0, 0.3, 0.25), (0.0, 0.25, 0.25), (9.0, 3.0, 4.0)]
)
def test_bounds_hold(measured, start, end):
    assert adapted(start, measured, 1.0, (0.25, 4.0)) == end


@given(st.floats(0.0625, 1024), st.floats(0, 1024), st.floats(0.0625, 1024))
def test_agrees_with_the_rule_as_the_paper_words_it(coefficient, measured, target):
    expected = coefficient
    if measured < target / 1.1:
        expected = coefficient / 2
    if measured > target * 1.1:
        expected = coefficient * 2
    near = np.isclose(measured, [target / 1.1, target * 1.1], rtol=1e-5).any()
    assert near or adapted(coefficient, measured, target) == pytest.approx(expected)


@pytest.mark.parametrize("bounds", [(1, 2), (1.0, 1.0), (0, float("inf"))])
def test_bounds_in_ascending_order_pass(bounds):
    check_bounds("somewhere.c_bounds", bounds)


def test_bounds_the_wrong_way_round_are_refused_by_name():
    with pytest.raises(
        UserError, match=r"^somewhere\.c_bounds must be in ascending order, not 2, 1"
    ):
        check_bounds("somewhere.c_bounds", (2, 1))


def test_a_coefficient_is_kept_by_its_client_unless_it_says_otherwise():
    assert Coefficient(1.0, (0.5, 2.0)).across_rounds == "kept"
