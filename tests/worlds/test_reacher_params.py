"""The paper's federations of Reachers, by parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedkl
from fedkl.core.errors import UserError
from fedkl.learning.randomness import Purpose, key_for
from fedkl.worlds import Differences, Reacher, ReacherParams
from fedkl.worlds.reacher_params import REACH, squares

KEY = jax.random.key(0)
SQUARES = {"initial_state": {"boxes": 60}}
NOISE = {"action_noise": {"normal": [0, 0.4], "clip": 1}}


def clients(n, key=KEY, **table):
    return Reacher(differences=Differences.from_table(table)).clients(n, key)


def same(a, b):
    assert jax.tree.map(lambda x: (x.shape, x.dtype), a) == jax.tree.map(
        lambda x: (x.shape, x.dtype), b
    )
    jax.tree.map(np.testing.assert_array_equal, a, b)


def as_before(n, key, boxes, noise):
    """The builders that results in the docs were made with, before there were parameters."""
    low, high = np.full((n, 2), -0.2), np.full((n, 2), 0.2)
    if boxes:
        z = np.arange(64)
        column, row = (sum(((z >> 2 * b + axis) & 1) << b for b in range(3)) for axis in (0, 1))
        corner = np.isin(column, (0, 7)) & np.isin(row, (0, 7))
        corners = np.stack([column, row], axis=1)[~corner]
        i = np.arange(n)
        chosen = i % 60 if n > 60 else (2 * i + 1) * 60 // (2 * n)
        low, high = corners[chosen] * 0.05 - 0.2, (corners[chosen] + 1) * 0.05 - 0.2
    low, high, zero = (jnp.asarray(x, float) for x in (low, high, np.zeros((n, 2))))
    offset, fresh = zero, zero[:, 0]
    if noise == "offset":
        offset = jnp.clip(0.4 * jax.random.normal(key, zero.shape, zero.dtype), -1.0, 1.0)
    if noise == "per_step":
        fresh = zero[:, 0] + 0.4
    return ReacherParams(low, high, offset, fresh)


PER_STEP = {"world.clients.action_noise": {"normal": [0.0, 0.4], "per": "step"}}


@pytest.mark.parametrize("n", [1, 3, 25, 60, 61, 130])
@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(
    ("preset", "boxes", "noise", "more"),
    [
        ("reacher-iid", False, "", {}),
        ("reacher-init-state", True, "", {}),
        ("reacher-dynamics", False, "offset", {}),
        ("reacher-both", True, "offset", {}),
        ("reacher-both-paper", True, "offset", {}),
        ("reacher-both-authors", True, "offset", {"world_seed": -1}),
        ("reacher-dynamics", False, "per_step", PER_STEP),
        ("reacher-both", True, "per_step", PER_STEP),
    ],
)
def test_the_presets_clients_have_the_bits_that_they_always_had(
    preset, boxes, noise, more, n, seed
):
    size = {"federation.clients": n, "federation.clients_per_round": 1}
    config = fedkl.preset(preset, seed=seed, set=size | more)
    same(config.client_params, as_before(n, key_for(seed, Purpose.WORLDS), boxes, noise))


def test_clients_without_a_table_are_alike():
    params = clients(3)
    np.testing.assert_allclose(params.target_low, np.full((3, 2), -0.2))
    np.testing.assert_allclose(params.target_high, np.full((3, 2), 0.2))
    assert not params.action_offset.any()
    assert not params.action_noise.any()
    assert params.action_noise.shape == (3,)


def test_sixty_distinct_squares_all_within_reach():
    low, high = (np.asarray(x) for x in clients(60, **SQUARES)[:2])
    np.testing.assert_allclose(high - low, 0.05, atol=1e-7)
    cells = np.rint((low + 0.2) / 0.05).astype(int)
    assert len({tuple(c) for c in cells}) == 60
    assert cells.min() == 0
    assert cells.max() == 7
    corners = {(0, 0), (0, 7), (7, 0), (7, 7)}
    assert corners.isdisjoint(tuple(c) for c in cells)
    assert (np.linalg.norm(np.clip(0, low, high), axis=1) < REACH).all()


def test_more_than_sixty_clients_share_squares():
    params, sixty = clients(130, **SQUARES), clients(60, **SQUARES)
    same(jax.tree.map(lambda x: x[:60], params), sixty)
    same(jax.tree.map(lambda x: x[60:120], params), sixty)
    same(jax.tree.map(lambda x: x[120:], params), jax.tree.map(lambda x: x[:10], params))


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 60))
def test_a_small_federation_covers_the_field(n):
    centre = (np.asarray(clients(n, **SQUARES).target_low) + 0.025).astype(float)
    assert len(np.unique(centre.round(3), axis=0)) == n
    quadrants = np.unique(centre > 0, axis=0, return_counts=True)[1]
    assert len(quadrants) == 4
    assert quadrants.max() - quadrants.min() <= 2


@pytest.mark.parametrize("number", [1, 4, 9, 16, 25, 36, 45, 60])
def test_the_field_can_be_cut_into_grids_without_what_is_out_of_reach(number):
    low, high = squares(number)
    assert len(low) == len(high) == number
    np.testing.assert_allclose(high - low, (high - low)[0, 0])
    assert (np.linalg.norm(np.clip(0, low, high), axis=1) < REACH).all()


def test_one_box_is_the_whole_field():
    same(clients(5, initial_state={"boxes": 1}), clients(5))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 12, 70]), st.floats(0, 3))
def test_offsets_are_clipped_and_scale(n, scale):
    noise = {"normal": [0, scale], "clip": 1}
    offsets = np.asarray(clients(n, action_noise=noise).action_offset)
    unit = np.asarray(jax.random.normal(KEY, (n, 2)))
    np.testing.assert_allclose(offsets, np.clip(scale * unit, -1, 1), rtol=1e-6, atol=1e-9)


def test_the_second_number_of_a_normal_draw_is_a_standard_deviation():
    offsets = np.asarray(clients(20_000, action_noise={"normal": [0, 0.2]}).action_offset)
    np.testing.assert_allclose(offsets.std(), 0.2, rtol=0.02)


def test_squares_and_noise_do_not_change_each_other():
    both, noise, boxes = clients(7, **SQUARES, **NOISE), clients(7, **NOISE), clients(7, **SQUARES)
    same(both[:2], boxes[:2])
    same(both[2:], noise[2:])


def test_action_noise_for_each_client_is_an_offset_by_another_name():
    same(clients(7, **NOISE), clients(7, action_offset=NOISE["action_noise"]))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            {"initial_state": {"boxes": 50}},
            "world.clients.initial_state: the reachable field cannot be cut into 50 boxes, but "
            "into 45 or 60",
        ),
        (
            {"initial_state": {"boxes": 60}, "target_low": -0.1},
            "world.clients.initial_state and world.clients.target_low both say where episodes",
        ),
        (
            {"action_noise": {"normal": [0, 1]}, "action_offset": 0.1},
            "world.clients.action_offset and world.clients.action_noise both say what "
            "action_offset is: leave out one",
        ),
        ({"target_low": 0.3}, "world.clients.target_low must be at least -0.2 and at most 0.2"),
        (
            {"target_low": [[0.16, 0.16]]},
            "world.clients: targets of client 0 would be in [0.16, 0.2] x [0.16, 0.2], where "
            "nothing is within the arm's reach of 0.2",
        ),
        (
            {"target_low": [-0.1, 0.1], "target_high": 0.0},
            "world.clients: client 1 would have target_low = 0.1, above its target_high = 0",
        ),
    ],
)
def test_boxes_that_cannot_be_are_told_in_one_sentence(table, sentence):
    with pytest.raises(UserError) as caught:
        clients(2, **table)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("n", [0, -1])
def test_there_is_no_federation_without_clients(n):
    with pytest.raises(UserError, match=f"at least one client, not {n}"):
        clients(n)
