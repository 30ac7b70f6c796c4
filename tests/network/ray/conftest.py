"""One Ray for all tests of a process: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedkl.network.ray.connection import Cluster, RaySettings, connected


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """What `connected` gives without an address."""
    with connected(RaySettings()) as cluster:
        yield cluster
