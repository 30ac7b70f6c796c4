"""Clipping keeps the direction and bounds the length."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedkl.core.errors import UserError
from fedkl.core.settings import build
from fedkl.server.aggregation import TRANSFORMS, Clip

KEY = jax.random.key(0)


def test_it_is_registered():
    assert TRANSFORMS["clip"] is Clip


def test_a_long_move_is_shortened():
    """(30, -40) is 50 long."""
    assert Clip(max_norm=5.0)(np.array([30.0, -40.0]), KEY).tolist() == [3.0, -4.0]


@pytest.mark.parametrize("move", [[0.0, 0.0], [3.0, -4.0], [0.1, 1e-12]])
def test_a_move_within_the_norm_keeps_its_bits(move):
    assert Clip(max_norm=5.0)(np.array(move), KEY).tolist() == move


@given(arrays(np.float64, 4, elements=st.floats(-1e6, 1e6)), st.floats(1e-3, 1e3))
def test_no_move_is_longer_than_the_norm_and_none_turns(move, max_norm):
    clipped = Clip(max_norm=max_norm)(move, KEY)
    length = np.linalg.norm(clipped)
    assert length <= max_norm * (1 + 1e-12)
    assert clipped @ move == pytest.approx(length * np.linalg.norm(move), rel=1e-9, abs=1e-300)


def test_a_norm_must_be_positive():
    with pytest.raises(UserError, match=r"^aggregation\.max_norm must be above 0, not 0\.0$"):
        build(Clip, {"max_norm": 0}, "aggregation")
