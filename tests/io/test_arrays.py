"""State as named arrays, and back."""

import jax
import numpy as np
import pytest

from fedkl.io.arrays import from_arrays, mismatch, size_in_bytes, to_arrays
from fedkl.server.loop import Federation


def test_a_whole_state_survives_the_round_trip(tiny):
    state = Federation(tiny("scaffold", aggregation__step="adam")).state
    again = from_arrays(state, to_arrays(state))
    assert jax.tree.structure(again) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


def test_names_say_where_a_leaf_is(tiny):
    names = to_arrays(Federation(tiny()).state)
    assert "model.policy.network.weights.0" in names
    assert "env_steps" in names


def test_a_leaf_that_does_not_fit_is_named():
    template = {"a": np.zeros(2), "b": np.zeros(3)}
    with pytest.raises(ValueError, match="b is missing"):
        from_arrays(template, {"a": np.zeros(2)})
    with pytest.raises(ValueError, match=r"a is float64 of shape \(1,\), not float64 of shape"):
        from_arrays(template, {"a": np.zeros(1), "b": np.zeros(3)})


def test_a_leaf_too_many_or_of_another_dtype_is_named():
    expected = {"a": np.zeros(2)}
    assert mismatch(expected, {"a": np.zeros(2)}) is None
    assert mismatch(expected, {"a": np.zeros(2), "b": np.zeros(1)}) == "b is not expected"
    found = mismatch(expected, {"a": np.zeros(2, np.float32)})
    assert found == "a is float32 of shape (2,), not float64 of shape (2,)"


def test_sizes_are_those_of_the_numbers_sent():
    assert size_in_bytes({"a": np.zeros((3, 2), np.float32), "b": np.int32(1)}) == 28
