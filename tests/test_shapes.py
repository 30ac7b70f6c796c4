"""Shapes in annotations are executed in tests (conftest.py sees to it): a wrong one raises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedkl.learning.advantage import advantages
from fedkl.learning.critic import with_time
from fedkl.learning.statistics import Moments
from fedkl.server.aggregation import Mean

OBSERVATION = jnp.ones((3, 2, 5))


def told(elapsed):
    """Two episodes of three steps."""
    return with_time(OBSERVATION, elapsed, 3)


@pytest.mark.parametrize("compiled", [False, True])
def test_axes_of_one_name_have_one_length(compiled):
    """A time for both episodes would be broadcast in silence, or fail far away."""
    call = jax.jit(told) if compiled else told
    assert call(jnp.ones((3, 2), int)).shape == (3, 2, 6)
    with pytest.raises(TypeCheckError, match="elapsed"):
        call(jnp.ones((3, 1), int))


def test_numpys_arrays_are_as_good_as_jaxs():
    np.testing.assert_array_equal(told(np.ones((3, 2), int)), told(jnp.ones((3, 2), int)))


def test_whole_numbers_are_numbers():
    ones, yes = jnp.ones((3, 2)), jnp.ones((3, 2), bool)
    steps = (ones, ones, ones, yes, yes)
    np.testing.assert_array_equal(advantages(*steps, 1, 0.95), advantages(*steps, 1.0, 0.95))


def test_other_kinds_of_numbers_raise():
    with pytest.raises(TypeCheckError, match="elapsed"):
        told(jnp.ones((3, 2)))


def test_shapes_are_checked_on_the_server():
    points = np.ones((4, 3))
    assert Mean()(points, np.ones(4)).shape == (3,)
    with pytest.raises(TypeCheckError, match="weights"):
        Mean()(points, np.ones(3))


def test_shapes_are_checked_where_fields_are_filled_in():
    with pytest.raises(TypeCheckError, match="squares"):
        Moments(np.array(4.0), np.zeros(2), np.zeros(3))
