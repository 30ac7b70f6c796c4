"""A real federation: a SuperLink and three SuperNodes on this machine, with TLS and keys."""

import socket
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from left_behind import about, nothing_is_left_of

import fedkl
from fedkl.algorithms import ALGORITHMS
from fedkl.network import keys
from fedkl.network.flower.engine import Flower, Screen
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.relay_client import NodeMessage
from fedkl.network.flower.superlink import SuperLink
from fedkl.network.flower.supervisor import LocalClients, local_nodes
from fedkl.network.messages import new_federation
from fedkl.network.signatures import Signer
from fedkl.server.loop import Federation

CLIENTS = 3
TINY = {
    "federation.clients": CLIENTS,
    "federation.clients_per_round": CLIENTS,
    "federation.rounds": 3,
    "learner.iterations": 2,
    "learner.steps": 64,
    "learner.epochs": 2,
    "learner.minibatch": 16,
    "evaluation.every": 100,
}
ROUNDS = 2


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory, quick_compilation):
    """Clients that serve one federation after the other."""
    folder = tmp_path_factory.mktemp("federation")
    folder.chmod(0o700)
    keys.make(folder / "keys", CLIENTS)
    link = SuperLink(folder / "flower", "127.0.0.1", free_port(), folder / "keys")
    nodes = local_nodes(link.address, folder, folder / "keys", CLIENTS, [])
    clients = LocalClients(nodes, print)
    try:
        engine = engine_of(fedkl.preset("probe-point", "fedkl", 0, TINY), folder / "keys")
        found = Fleet(link.connect, keys.public_keys(folder / "keys"), print, engine.greet)
        clients.start()
        assert sorted(found.wait(range(CLIENTS), CLIENTS, 90)) == [0, 1, 2]
        assert len(about(folder)) > 3 * CLIENTS
        found.keys = folder / "keys"
        yield found
        found.close()
    finally:
        clients.stop()
        link.stop()
    nothing_is_left_of(folder)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found by /proc")
def test_over_the_network_every_algorithm_learns_the_bits_of_this_process(fleet):
    # One test, so that one fleet serves all of them.
    assert owners(fleet) == fleet.connected()
    assert [name for name in ALGORITHMS if not learns_the_same(fleet, name)] == []


def engine_of(config, folder):
    engine = Flower(config, new_federation(), 60, Screen(print, lambda _: None))
    engine.signer = Signer(folder)
    return engine


def learns_the_same(fleet, algorithm):
    """Whether an algorithm comes to the same state there and here."""
    config = fedkl.preset("probe-point", algorithm, 0, TINY)
    engine = engine_of(config, fleet.keys)
    engine.start(fleet)
    here, there = Federation(config), Federation(config, engine)
    for _ in range(ROUNDS):
        record = there.run_round()
        here.run_round()
        assert record["rejected"] == []
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, there.state, here.state)))


def owners(fleet):
    """The node of each client, by what nodes say of themselves."""
    signer = Signer(fleet.keys)
    nodes = fleet.connected().items()
    ids = fleet.push([NodeMessage(node, signer.sign(client, b""), 60.0) for client, node in nodes])
    found, end = {}, time.monotonic() + 60
    while ids and time.monotonic() < end:
        for answer in fleet.pull(dict.fromkeys(ids, 0)):
            ids.remove(answer.id)
            assert answer.content == b""
            found[answer.client] = answer.node
        time.sleep(0.05)
    return found
