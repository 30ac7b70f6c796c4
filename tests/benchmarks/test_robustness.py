"""What the attackers of the robustness benchmark send."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fedkl
from fedkl import Federation


@pytest.fixture
def robustness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("robustness")


START = {"bias": np.zeros(1, np.float32), "weight": np.ones(3, np.float32)}
END = {"bias": np.asarray([3.0], np.float32), "weight": np.asarray([5.0, 1.0, 1.0], np.float32)}
"""A move of norm 5."""


def sent(robustness: ModuleType, attack: str) -> Any:
    return robustness.attacked(attack, START, END, np.random.default_rng(1))


def length(end: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum((end[name] - START[name]) ** 2) for name in START)))


def test_a_flipped_move_goes_the_other_way(robustness: ModuleType) -> None:
    false = sent(robustness, "sign-flip")
    np.testing.assert_allclose(false["bias"], [-3])
    np.testing.assert_allclose(false["weight"], [-3, 1, 1])


def test_a_constant_move_is_the_same_everywhere_and_ten_times_as_long(
    robustness: ModuleType,
) -> None:
    false = sent(robustness, "constant")
    np.testing.assert_allclose(false["bias"], [25])  # 50 over the root of 4 parameters
    np.testing.assert_allclose(false["weight"], [26, 26, 26])


def test_noise_is_ten_times_as_long_and_comes_again_with_its_seed(robustness: ModuleType) -> None:
    false, again = sent(robustness, "noise"), sent(robustness, "noise")
    assert length(false) == pytest.approx(50)
    np.testing.assert_array_equal(false["weight"], again["weight"])
    assert false["weight"].dtype == np.float32


def test_exactly_the_lowest_numbers_attack_and_the_rest_is_honest(
    robustness: ModuleType, tiny: Callable[..., fedkl.Config]
) -> None:
    updates: dict[str, dict[int, Any]] = {}
    for attack in ("none", "sign-flip"):
        federation = Federation(tiny(federation__clients_per_round=4, evaluation__every=3))
        if attack != "none":
            federation.engine = robustness.Attacked(federation.engine, attack, 1)
        updates[attack] = found = {}
        seen = federation.engine.run

        def run(*args: Any, seen: Any = seen, found: dict[int, Any] = found) -> Any:
            for client, trained in seen(*args):
                found[client] = trained.update
                yield client, trained

        federation.engine.run = run  # type: ignore[method-assign]
        record = federation.run_round()
        assert record["rejected"] == []
    start = Federation(tiny()).state.model.policy.network.biases[0]
    for client in range(4):
        honest, told = (updates[a][client].model for a in ("none", "sign-flip"))
        moved = np.asarray(honest.policy.network.biases[0]) - start
        claimed = np.asarray(told.policy.network.biases[0]) - start
        np.testing.assert_allclose(claimed, -moved if client == 0 else moved, atol=1e-6)
        np.testing.assert_array_equal(honest.observations.mean, told.observations.mean)
