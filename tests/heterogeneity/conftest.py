"""What the tests of heterogeneity share: finite MDPs whose exact values are known."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def finite_world() -> Iterator[ModuleType]:
    """The module whose `Sampled` has agents of a family measure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("finite_world")
