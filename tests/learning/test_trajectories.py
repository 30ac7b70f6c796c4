"""How many episodes an iteration runs, and what they returned."""

import jax.numpy as jnp
import pytest

from fedkl.learning.trajectories import Trajectories, episodes_for
from fedkl.worlds import Chain


@pytest.mark.parametrize(("steps", "episodes"), [(1, 1), (200, 1), (201, 2), (2000, 10)])
def test_whole_episodes_fill_the_steps(steps, episodes):
    assert episodes_for(Chain(), steps) == episodes


def test_what_is_paid_after_an_end_is_no_return():
    reward = jnp.array([[1.0, 2.0], [3.0, jnp.nan], [5.0, jnp.inf]])
    mask = jnp.array([[True, True], [True, False], [True, False]])
    data = Trajectories(jnp.zeros((3, 2, 1)), reward, reward, ~mask, mask, jnp.zeros((2, 1)))
    assert data.returns().tolist() == [9, 2]
