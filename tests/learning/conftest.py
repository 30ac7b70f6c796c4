"""What the tests of learning share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _always_quick(quick_compilation: None) -> None:
    """All tests here compile small functions."""
