"""theta^{t+1} = sum_k l_k / L theta_k, and exact merging of statistics."""

import equinox as eqx
import jax
import numpy as np
import pytest

from fedkl.federation.aggregation import aggregate
from fedkl.learning.state import Model, Update
from fedkl.learning.statistics import Moments


def moments(data: np.ndarray) -> Moments:
    return Moments(np.float64(len(data)), data.mean(0), ((data - data.mean(0)) ** 2).sum(0))


def model(value: float, data: np.ndarray | None = None) -> Model:
    return Model(
        policy={"w": np.full((2, 2), value, np.float32)},
        critic=None,
        observations=None if data is None else moments(data),
        rewards=None,
        coefficients={"c2": np.float32(value)},
    )


def test_the_average_is_weighted_by_the_number_of_samples():
    updates = {4: Update(model(1.0), np.float32(1)), 2: Update(model(5.0), np.float32(3))}
    result = aggregate(model(0.0), updates)
    assert result.policy["w"].tolist() == [[4.0, 4.0], [4.0, 4.0]]
    assert result.coefficients["c2"] == 4.0
    assert result.policy["w"].dtype == np.float32


def test_one_update_replaces_the_model():
    result = aggregate(model(0.0), {0: Update(model(0.3), np.float32(17))})
    assert result.policy["w"][0, 0] == np.float32(0.3)


def test_no_update_leaves_the_model_as_it_is():
    before = model(1.5)
    assert aggregate(before, {}) is before


def test_the_order_of_arrival_does_not_change_a_bit():
    rng = np.random.default_rng(0)
    updates = {
        c: Update(
            eqx.tree_at(
                lambda m: m.policy, model(0.0), {"w": rng.normal(size=(2, 2)).astype(np.float32)}
            ),
            np.float32(rng.integers(1, 100)),
        )
        for c in range(9)
    }
    forwards = aggregate(model(0.0), updates)
    backwards = aggregate(model(0.0), dict(reversed(updates.items())))
    assert np.array_equal(forwards.policy["w"], backwards.policy["w"])


def test_merged_statistics_equal_those_of_all_data_together():
    rng = np.random.default_rng(1)
    parts = [rng.normal(3.0, 2.0, size=(n, 3)) for n in (50, 7, 120)]
    updates = {c: Update(model(0.0, part), np.float32(1)) for c, part in enumerate(parts[1:])}
    result = aggregate(model(0.0, parts[0]), updates).observations
    everything = np.concatenate(parts)
    assert result.count == 177
    assert result.mean == pytest.approx(everything.mean(0), abs=1e-12)
    assert result.squares / result.count == pytest.approx(everything.var(0), abs=1e-12)
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(result))
