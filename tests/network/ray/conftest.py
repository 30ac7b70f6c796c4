"""One Ray for all tests of a process: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedkl.network.ray.connection import Cluster, Where, connected


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """What `connected` gives without an address."""
    with connected(Where()) as cluster:
        yield cluster
