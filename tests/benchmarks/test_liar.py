"""One client's lie about its data, and how far anchors follow it."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedkl.learning.statistics import Moments


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("liar")


def moments(mean: float, deviation: float) -> Moments:
    """Of a hundred samples of two features that go together by half."""
    squares = np.full(2, 100 * deviation**2, np.float32)
    return Moments(np.float32(100), np.full(2, mean, np.float32), squares, squares[:1] / 2)


def test_a_lie_moves_the_mean_or_widens_and_leaves_the_rest(liar: ModuleType) -> None:
    """Mean 1, deviation 2: three deviations away is 7, and three times as wide is 6."""
    away = liar.falsified("mean", 3.0, moments(1.0, 2.0))
    np.testing.assert_allclose(away.mean, [7, 7])
    np.testing.assert_allclose(away.squares, [400, 400])
    wide = liar.falsified("deviation", 3.0, moments(1.0, 2.0))
    np.testing.assert_allclose(wide.mean, [1, 1])
    np.testing.assert_allclose(wide.squares, [3600, 3600])
    np.testing.assert_allclose(wide.products, [1800])


def test_what_has_not_moved_is_0_and_what_is_elsewhere_1(liar: ModuleType) -> None:
    honest = moments(0.0, 1.0)
    assert liar.moved(honest, honest) == 0
    assert liar.moved(honest, moments(100.0, 1.0)) > 0.999


@pytest.mark.usefixtures("quick_compilation")
def test_validation_refuses_large_lies_and_the_suggested_reducer_bears_all(
    liar: ModuleType,
) -> None:
    """A small lie passes validation; a refused one is an honest client less."""
    found = {
        (line["defence"], line["lie"], line["size"]): line
        for line in liar.measure(
            [liar.NO_LIMIT, liar.VALIDATED, liar.SUGGESTED],
            [3.0, 100.0],
        )
    }
    for lie in liar.LIES:
        assert found[liar.NO_LIMIT, lie, 100.0]["refused"] == 0
        assert found[liar.NO_LIMIT, lie, 100.0]["moved"] > 0.9
        assert found[liar.VALIDATED, lie, 100.0]["refused"] == liar.ROUNDS
        assert found[liar.VALIDATED, lie, 100.0]["moved"] < 0.3
        assert (
            found[liar.VALIDATED, lie, 3.0]["moved"]
            == found[liar.NO_LIMIT, lie, 3.0]["moved"]
            > 0.4
        )
        assert found[liar.SUGGESTED, lie, 3.0]["moved"] < 0.3
        assert found[liar.SUGGESTED, lie, 100.0]["moved"] < 0.3
