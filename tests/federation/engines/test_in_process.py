"""The simulation and a lone client run the same code and give the same update."""

import jax
import numpy as np
import pytest

from fedkl.federation.loop import Federation
from fedkl.federation.randomness import Purpose, key_for
from fedkl.federation.state import broadcast
from fedkl.learning.local_training import local_round


def outcomes(config, clients):
    federation = Federation(config)
    keys = [key_for(0, Purpose.TRAINING, 0, c, 0) for c in clients]
    model = broadcast(federation.state.model)
    shared_key = key_for(0, Purpose.SHARED_WORLD, 0, 0)
    trained = federation.engine.train(model, clients, federation.state.clients, keys, shared_key)
    return federation, model, trained


@pytest.mark.parametrize("algorithm", ["fedkl", "fedavg", "fedprox", "fmarl"])
def test_a_network_client_would_send_the_same_bits(tiny, algorithm):
    config = tiny(algorithm)
    federation, model, simulated = outcomes(config, [0, 3])
    params = config.world.clients(4, key_for(0, Purpose.WORLDS))
    for client, (update, _, _) in zip([0, 3], simulated, strict=True):
        alone, _, _ = jax.jit(local_round)(
            federation.task,
            model,
            jax.tree.map(lambda x, c=client: x[c], federation.state.clients),
            jax.tree.map(lambda x, c=client: x[c], params),
            key_for(0, Purpose.TRAINING, 0, client, 0),
        )
        assert all(jax.tree.leaves(jax.tree.map(np.array_equal, update, jax.device_get(alone))))


def test_clients_vmapped_together_give_the_same_update_up_to_rounding(tiny):
    _, _, singly = outcomes(tiny(), [0, 1, 3])
    _, _, together = outcomes(tiny(federation__clients_at_once=2), [0, 1, 3])
    for a, b in zip(singly, together, strict=True):
        for x, y in zip(jax.tree.leaves(a[0]), jax.tree.leaves(b[0]), strict=True):
            assert np.allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_client_does_not_depend_on_who_else_is_selected(tiny):
    _, _, pair = outcomes(tiny(), [1, 2])
    _, _, other = outcomes(tiny(), [2, 3])
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, pair[1], other[0])))


def test_evaluation_of_many_clients_equals_that_of_each(tiny):
    config = tiny(federation__clients=23)
    federation = Federation(config)
    returns = federation.evaluate(5, deterministic=True)
    assert returns.shape == (23, 5)
    # The deterministic policy starts at 0, so the return is -(target)^2 for each client.
    targets = np.asarray(config.world.clients(23, key_for(0, Purpose.WORLDS)).target).reshape(23)
    assert returns.mean(axis=1) == pytest.approx(-(targets**2), abs=0.05)


def test_a_recording_is_an_episode_in_that_clients_world(tiny):
    config = tiny(world__spread=0.3)
    federation = Federation(config)
    model = broadcast(federation.state.model)
    recording = federation.engine.record(
        model, federation.state.clients, jax.random.key(0), 3, deterministic=True
    )
    # The last of four clients wants 0.5 + 0.3, and the fresh policy acts with about 0.
    assert recording.params.target == pytest.approx(0.8)
    assert recording.reward == pytest.approx(np.array([-(0.8**2)]), abs=0.05)
