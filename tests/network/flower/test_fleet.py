"""Who is connected: by keys, or, without them, by what nodes say."""

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from fedkl.network import keys
from fedkl.network.flower import fleet as fleet_module
from fedkl.network.flower.carrier import Answer
from fedkl.network.flower.fleet import Fleet


class Nodes:
    """A carrier of nodes that say whose they are."""

    def __init__(self, nodes, says=None):
        self.connected = nodes
        self.says = says or {}
        self.asked = []
        self.closed = False

    def nodes(self):
        return dict(self.connected)

    def push(self, parcels):
        self.asked += [parcel.node for parcel in parcels]
        return [f"to {parcel.node}" for parcel in parcels]

    def pull(self, ids):
        nodes = [int(i.removeprefix("to ")) for i in ids]
        return [
            Answer(f"to {node}", node, self.says[node], b"") for node in nodes if node in self.says
        ]

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """The keys of two clients, as Flower gives them."""
    folder = tmp_path_factory.mktemp("keys") / "keys"
    keys.make(folder, 2)
    found = {}
    for client in range(2):
        key = load_ssh_public_key((folder / f"client-{client}.pub").read_bytes())
        found[client] = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return folder, found


def test_a_node_is_whose_key_it_has_and_nobody_elses(pems):
    folder, pem = pems
    lines = []
    carrier = Nodes({7: pem[1], 8: b"somebody's"}, says={7: 0, 8: 0})
    fleet = Fleet(lambda: carrier, keys.public_keys(folder), lines.append)
    assert fleet.connected() == {1: 7}
    carrier.connected = {7: pem[1], 9: pem[0]}
    assert fleet.connected() == {1: 7, 0: 9}
    carrier.connected = {9: pem[0]}
    assert fleet.connected() == {0: 9}
    assert fleet.connected() == {0: 9}
    assert lines == [
        "client 1 is connected (1 connected)",
        "client 0 is connected (2 connected)",
        "client 1 is gone (1 connected)",
    ]
    assert carrier.asked == []


def test_without_keys_a_node_is_whose_it_says_and_the_first_one_counts():
    carrier = Nodes({7: b"", 8: b""}, says={7: 1})
    fleet = Fleet(lambda: carrier, None, lambda _: None)
    assert fleet.connected() == {1: 7}
    carrier.says[8] = 1
    assert fleet.connected() == {1: 7}
    carrier.connected = {8: b"", 9: b""}
    carrier.says[9] = None
    assert fleet.connected() == {1: 8}
    assert carrier.asked == [7, 8, 9]


def test_waiting_ends_when_enough_are_there_or_the_time_is_over():
    carrier = Nodes({7: b"", 8: b""}, says={7: 1, 8: 5})
    fleet = Fleet(lambda: carrier, None, lambda _: None)
    assert fleet.wait([0, 1], 1, 60) == {1: 7}
    assert fleet.wait([0, 1], 2, 0) == {1: 7}


def test_whoever_comes_a_moment_later_is_waited_for_and_whoever_does_not_come_is_not(monkeypatch):
    monkeypatch.setattr(fleet_module, "LOOKING", 0.0)
    clock = iter(range(1000))
    monkeypatch.setattr(fleet_module.time, "monotonic", lambda: next(clock))
    carrier = Nodes({7: b""}, says={7: 0, 8: 1, 9: 2})
    fleet = Fleet(lambda: carrier, None, lambda _: None)
    looks = []

    def nodes():
        looks.append(len(looks))
        return {7: b"", **({8: b""} if len(looks) > 5 else {}), **later}

    later = {}
    carrier.nodes = nodes
    fleet.settle(range(3))
    assert fleet.connected() == {0: 7, 1: 8}
    assert len(looks) > 5 + fleet_module.SETTLING
    later[9] = b""
    looks.clear()
    fleet.settle(range(3))
    assert len(looks) == 6


def test_what_is_lost_is_made_anew_and_asked_again():
    carriers = [Nodes({7: b""}, says={7: 1}), Nodes({9: b""}, says={9: 1})]
    made = iter(carriers)
    fleet = Fleet(lambda: next(made), None, lambda _: None)
    assert fleet.connected() == {1: 7}
    fleet.reconnect()
    assert fleet.connected() == {1: 9}
    assert [carrier.closed for carrier in carriers] == [True, False]
