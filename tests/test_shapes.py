"""Shapes in annotations are executed in tests (conftest.py sees to it): a wrong one raises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedkl.learning.advantage import advantages
from fedkl.learning.statistics import Moments
from fedkl.server.aggregation import Mean


def estimated(last_value, discount=0.9):
    """Of two episodes of three steps."""
    steps, ended = jnp.ones((3, 2)), jnp.zeros((3, 2), bool)
    return advantages(steps, steps, last_value, ended, ~ended, discount, 0.95)


@pytest.mark.parametrize("compiled", [False, True])
def test_axes_of_one_name_have_one_length(compiled):
    """A value for both episodes would be broadcast in silence."""
    call = jax.jit(estimated) if compiled else estimated
    assert call(jnp.ones(2)).shape == (3, 2)
    with pytest.raises(TypeCheckError, match="last_value"):
        call(jnp.ones(1))


def test_numpys_arrays_are_as_good_as_jaxs_and_whole_numbers_are_numbers():
    np.testing.assert_array_equal(estimated(np.ones(2, np.float32)), estimated(jnp.ones(2)))
    np.testing.assert_array_equal(estimated(jnp.ones(2), 1), estimated(jnp.ones(2), 1.0))


def test_other_kinds_of_numbers_raise():
    with pytest.raises(TypeCheckError, match="last_value"):
        estimated(jnp.ones(2, int))


def test_shapes_are_checked_on_the_server():
    points = np.ones((4, 3))
    assert Mean()(points, np.ones(4)).shape == (3,)
    with pytest.raises(TypeCheckError, match="weights"):
        Mean()(points, np.ones(3))


def test_shapes_are_checked_where_fields_are_filled_in():
    with pytest.raises(TypeCheckError, match="squares"):
        Moments(np.array(4.0), np.zeros(2), np.zeros(3))
