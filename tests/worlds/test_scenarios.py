"""The paper's federations of Reachers."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.errors import UserError
from fedkl.worlds import action_noise, both, iid, initial_states
from fedkl.worlds.scenarios import REACH

KEY = jax.random.key(0)


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_iid_clients_are_alike():
    params = iid(3)
    np.testing.assert_allclose(params.target_low, np.full((3, 2), -0.2))
    np.testing.assert_allclose(params.target_high, np.full((3, 2), 0.2))
    assert not params.action_offset.any()
    assert not params.action_noise.any()
    assert params.action_noise.shape == (3,)


def test_sixty_distinct_squares_all_within_reach():
    low, high = (np.asarray(x) for x in initial_states()[:2])
    np.testing.assert_allclose(high - low, 0.05, atol=1e-7)
    cells = np.rint((low + 0.2) / 0.05).astype(int)
    assert len({tuple(c) for c in cells}) == 60
    assert cells.min() == 0
    assert cells.max() == 7
    corners = {(0, 0), (0, 7), (7, 0), (7, 7)}
    assert corners.isdisjoint(tuple(c) for c in cells)
    assert (np.linalg.norm(np.clip(0, low, high), axis=1) < REACH).all()


def test_more_than_sixty_clients_share_squares():
    params = initial_states(130)
    same(jax.tree.map(lambda x: x[:60], params), initial_states(60))
    same(jax.tree.map(lambda x: x[60:120], params), initial_states(60))
    same(jax.tree.map(lambda x: x[120:], params), jax.tree.map(lambda x: x[:10], params))


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 60))
def test_a_small_federation_covers_the_field(n):
    centre = (np.asarray(initial_states(n).target_low) + 0.025).astype(float)
    assert len(np.unique(centre.round(3), axis=0)) == n
    quadrants = np.unique(centre > 0, axis=0, return_counts=True)[1]
    assert len(quadrants) == 4
    assert quadrants.max() - quadrants.min() <= 2


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 12, 70]), st.floats(0, 3))
def test_offsets_are_clipped_and_scale(n, scale):
    offsets = np.asarray(action_noise(n, scale, "offset", KEY).action_offset)
    unit = np.asarray(jax.random.normal(KEY, (n, 2)))
    np.testing.assert_allclose(offsets, np.clip(scale * unit, -1, 1), rtol=1e-6, atol=1e-9)


def test_offset_scale_is_a_standard_deviation():
    offsets = np.asarray(action_noise(20_000, 0.2, "offset", KEY).action_offset)
    np.testing.assert_allclose(offsets.std(), 0.2, rtol=0.02)


def test_per_step_noise_has_no_offset():
    params = action_noise(4, 0.4, "per_step", KEY)
    assert not params.action_offset.any()
    np.testing.assert_allclose(params.action_noise, 0.4)


@pytest.mark.parametrize("kind", ["offset", "per_step"])
def test_both_joins_squares_and_noise(kind):
    params, noise, squares = (
        both(7, 0.4, kind, KEY),
        action_noise(7, 0.4, kind, KEY),
        initial_states(7),
    )
    same(params[:2], squares[:2])
    same(params[2:], noise[2:])


def test_a_traced_scale_is_accepted():
    traced = jax.jit(lambda scale: action_noise(3, scale, "offset", KEY))(0.4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
        traced,
        action_noise(3, 0.4, "offset", KEY),
    )


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: iid(0), "at least one client, not 0"),
        (lambda: initial_states(-1), "at least one client, not -1"),
        (lambda: action_noise(2, -0.1, "offset", KEY), "scale of action noise must be .* not -0.1"),
        (lambda: action_noise(2, float("nan"), "offset", KEY), "scale of action noise .* not nan"),
        (lambda: both(2, 0.4, "pink", KEY), "must be offset or per_step, not 'pink'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(build, sentence):
    with pytest.raises(UserError, match=sentence):
        build()
