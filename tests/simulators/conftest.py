"""What the tests of simulators share: actors that are known."""

from collections.abc import Callable

import numpy as np
import pytest

from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Seed


@pytest.fixture(scope="session")
def linear() -> Callable[..., Actor]:
    """Makes actors whose mean action is a bias plus weights times the observation as it is."""

    def make(bias: float, weights: list[float], deviation: float = 0.0, *seeds: Seed) -> Actor:
        size = len(weights)
        return Actor(
            weights=(np.array(weights, np.float32)[:, None],),
            biases=(np.array([bias], np.float32),),
            deviation=np.array([deviation], np.float32),
            centre=np.zeros(size, np.float32),
            scale=np.ones(size, np.float32),
            clip=np.inf,
            exploration=0.0,
            seeds=seeds or (Seed((0,)),),
        )

    return make
