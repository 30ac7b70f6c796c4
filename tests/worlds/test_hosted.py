"""Worlds on the host: both kinds are hosted, and a client's row reaches its own simulator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_worlds import Points

from fedkl.simulators.actors import Actor
from fedkl.simulators.base import Seed
from fedkl.simulators.episodes import EpisodeJob
from fedkl.simulators.pool import Workers
from fedkl.worlds import (
    AnyWorld,
    FigureEight,
    HostedWorld,
    PointTarget,
    SharedWorld,
    SoloWorld,
)

KEY = jax.random.key(0)


def test_on_the_host_is_not_the_same_as_shared():
    solo, shared = Points(), FigureEight()
    assert isinstance(solo, HostedWorld)
    assert isinstance(shared, HostedWorld)
    assert not isinstance(solo, SharedWorld)
    assert not isinstance(shared, SoloWorld)
    assert all(isinstance(world, AnyWorld) for world in (solo, shared, PointTarget()))


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("horizon", [1, 5])
def test_a_client_with_its_own_simulator_is_paid_as_in_the_traced_world(horizon):
    world, clients = Points(horizon=horizon, length=horizon, spread=1.0), 3
    params = world.clients(clients, KEY)
    actor = Actor(
        weights=(np.array([[0.3]], np.float32),),
        biases=(np.array([0.4], np.float32),),
        deviation=np.zeros(1, np.float32),
        centre=np.zeros(1, np.float32),
        scale=np.ones(1, np.float32),
        clip=np.inf,
        seeds=(Seed((0,)),),
    )
    rows = [jax.tree.map(lambda x, n=n: np.asarray(x[n]), params) for n in range(clients)]
    jobs = [
        EpisodeJob((Seed((n,)),), [actor], (horizon,), params=row) for n, row in enumerate(rows)
    ]
    workers = Workers(world.simulator(), world.patience, number=1)
    episodes = workers.run(jobs)
    workers.close()
    traced = PointTarget(spread=world.spread)
    step = jax.vmap(traced.step, (0, None, None, None))
    paid = step(traced.clients(clients, KEY), (), jnp.asarray([0.7]), KEY).reward
    for n, episode in enumerate(episodes):
        np.testing.assert_allclose(episode.reward, np.full((horizon, 1, 1), paid[n]), rtol=1e-5)
        assert episode.terminated[:, 0, 0].tolist() == [False] * (horizon - 1) + [True]
