"""How many columns an iteration runs, what they returned, and where episodes lie in them."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.learning.settings import LearnerSettings
from fedkl.learning.trajectories import Trajectories, columns_for, first, samples_in
from fedkl.worlds import Chain


@pytest.mark.parametrize(("steps", "columns"), [(1, 1), (200, 1), (201, 2), (2000, 10)])
def test_columns_of_the_time_limit_hold_the_steps(steps, columns):
    assert columns_for(Chain(), steps) == columns


@pytest.mark.parametrize(("collect", "samples"), [("steps", 201), ("episodes", 400)])
def test_an_iteration_has_the_steps_asked_for_or_whole_episodes(collect, samples):
    assert samples_in(Chain(), LearnerSettings(steps=201, collect=collect)) == samples


def test_the_first_steps_are_counted_column_by_column():
    assert first(5, rows=3, columns=2).T.tolist() == [[True] * 3, [True, True, False]]


def columns(reward, terminated, mask=None, truncated=None):
    """Each argument with a row for each column."""
    reward = jnp.array(reward, float).T
    mask = jnp.ones(reward.shape, bool) if mask is None else jnp.array(mask).T
    return Trajectories(
        jnp.zeros((*reward.shape, 1)),
        reward,
        reward,
        jnp.array(terminated, bool).T,
        mask,
        jnp.zeros((reward.shape[1], 1)),
        None if truncated is None else jnp.array(truncated, bool).T,
    )


def test_what_is_paid_after_an_end_is_no_return():
    mask = [[True, True, True], [True, False, False]]
    data = columns([[1, 3, 5], [2, jnp.nan, jnp.inf]], [[0, 0, 0], [1, 0, 0]], mask)
    assert data.returns().tolist() == [9, 2]
    assert float(data.mean_return()) == (9 + 2) / 2


def test_time_starts_anew_after_an_end():
    data = columns(np.zeros((2, 5)), [[0, 1, 0, 0, 0], [0] * 5], None, [[0, 0, 0, 1, 0], [0] * 5])
    assert data.elapsed().T.tolist() == [[0, 1, 0, 1, 0], [0, 1, 2, 3, 4]]


def test_who_waits_for_the_next_episode_has_not_begun_it():
    data = columns(np.zeros((1, 5)), [[0, 1, 0, 0, 0]], [[True, True, False, True, True]])
    assert data.elapsed()[:, 0][jnp.array([0, 1, 3, 4])].tolist() == [0, 1, 0, 1]


def test_the_mean_return_is_that_of_episodes_that_came_to_an_end():
    """The first column holds returns of 3 and 7, and a cut one; the second ran to the limit."""
    reward = [[1, 2, 3, 4, 5], [1, 1, 1, 1, 1]]
    data = columns(reward, [[0, 1, 0, 0, 0], [0] * 5], None, [[0, 0, 0, 1, 0], [0] * 5])
    assert float(data.mean_return()) == (3 + 7 + 5) / 3


def test_an_end_that_is_not_counted_is_none_and_without_any_there_is_no_mean():
    mask = [[True, True, False]]
    assert jnp.isnan(columns([[1, 2, 4]], [[0, 0, 1]], mask).mean_return())
    assert float(columns([[1, 2, 4]], [[1, 0, 1]], mask).mean_return()) == 1
