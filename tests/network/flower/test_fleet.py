"""Who is connected: by keys, or, without them, by what nodes say."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from fedkl.network import keys
from fedkl.network.flower import fleet as fleet_module
from fedkl.network.flower.fleet import Fleet, SentGreeting
from fedkl.network.flower.relay_client import NodeAnswer, NodeMessage
from fedkl.network.messages import Reply, write_reply


class Nodes:
    """A transport of nodes that say whose they are."""

    def __init__(self, nodes, says=None, refuses=()):
        self.connected = nodes
        self.says = says or {}
        self.refuses = refuses
        self.told = []
        self.nonces = {}
        self.closed = False

    def nodes(self):
        return dict(self.connected)

    def push(self, messages):
        self.told += [(message.node, message.blob.decode()) for message in messages]
        self.nonces |= {message.node: f"nonce of {message.node}" for message in messages}
        return [f"to {message.node}" for message in messages]

    def pull(self, ids):
        nodes = [int(i.removeprefix("to ")) for i in ids]
        return [NodeAnswer(f"to {n}", n, *self._answer(n)) for n in nodes if n in self.says]

    def _answer(self, node):
        """Its number, and what it says to a greeting; or a sentence."""
        client = self.says[node]
        if isinstance(client, str):
            return None, client
        refusal = "its world is another" if node in self.refuses else self._refused(node)
        return client, write_reply(Reply("", client, 0, 0, self.nonces[node], refusal, {}))

    def _refused(self, node):
        said = [refusal for to, refusal in self.told if to == node][-1]
        return "" if said.startswith("client") and "already" not in said else said

    def close(self):
        self.closed = True


def greet(node, client, refusal="", over=False):
    to = "" if client is None else f"client {client}"
    said = to + refusal + " farewell" * over
    return SentGreeting(NodeMessage(node, said.encode(), 60.0), f"nonce of {node}")


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
    transport = Nodes({7: pem[1], 8: b"somebody's"}, says={7: 1, 8: 0, 9: 0})
    fleet = Fleet(lambda: transport, keys.public_keys(folder), lines.append, greet)
    assert fleet.connected() == {1: 7}
    transport.connected = {7: pem[1], 9: pem[0]}
    assert fleet.connected() == {1: 7, 0: 9}
    transport.connected = {9: pem[0]}
    assert fleet.connected() == {0: 9}
    assert fleet.connected() == {0: 9}
    assert lines == [
        "client 1 is connected (1 connected)",
        "client 0 is connected (2 connected)",
        "client 1 is gone (1 connected)",
    ]
    # Who has no key of the federation is told nothing.
    assert transport.told == [(7, "client 1"), (9, "client 0")]


def test_an_answer_to_another_greeting_does_not_count(pems):
    folder, pem = pems
    lines = []
    transport = Nodes({7: pem[0]}, says={7: 0})
    fleet = Fleet(lambda: transport, keys.public_keys(folder), lines.append, greet)
    push = transport.push

    def tampered(messages):
        ids = push(messages)
        transport.nonces[7] = "another"
        return ids

    transport.push = tampered
    assert fleet.connected() == {}
    assert lines == ["client 0 cannot take part: it answered for another request"]


def test_without_keys_a_node_is_whose_it_says_and_the_first_one_counts():
    transport = Nodes({7: b"", 8: b""}, says={7: 1})
    fleet = Fleet(lambda: transport, None, lambda _: None, greet)
    assert fleet.connected() == {1: 7}
    transport.says[8] = 1
    assert fleet.connected() == {1: 7}
    transport.connected = {8: b"", 9: b""}
    transport.says[9] = "it failed"
    assert fleet.connected() == {1: 8}
    assert transport.told == [(7, ""), (8, ""), (9, "")]


@pytest.mark.parametrize("by_keys", [True, False])
def test_who_cannot_take_part_is_named_with_the_reason_and_counts_as_absent(pems, by_keys):
    folder, pem = pems
    lines = []
    transport = Nodes({7: pem[0], 8: pem[1]}, says={7: 0, 8: 1}, refuses={8})
    owners = keys.public_keys(folder) if by_keys else None
    fleet = Fleet(lambda: transport, owners, lines.append, greet)
    for _ in range(2):
        assert fleet.connected() == {0: 7}
    assert lines == [
        "client 1 cannot take part: its world is another",
        "client 0 is connected (1 connected)",
    ]


def test_a_number_that_another_has_is_refused_when_that_one_does_not_go(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(fleet_module.time, "monotonic", lambda: clock[0])
    transport, lines = Nodes({7: b"", 8: b""}, says={7: 1, 8: 1}), []
    fleet = Fleet(lambda: transport, None, lines.append, greet)
    for now in (
        0.0,
        fleet_module.DUPLICATE_TIMEOUT,
        fleet_module.DUPLICATE_TIMEOUT + 1,
        fleet_module.DUPLICATE_TIMEOUT + 2,
    ):
        clock[0] = now
        assert fleet.connected() == {1: 7}
    reason = "client 1 is connected already, from elsewhere"
    assert transport.told == [(7, ""), (8, ""), (8, reason)]


def test_a_client_whose_answer_was_lost_is_greeted_again(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(fleet_module.time, "monotonic", lambda: clock[0])
    transport = Nodes({7: b""}, says={7: "its answer was lost on the way"})
    fleet = Fleet(lambda: transport, None, lambda _: None, greet)
    assert fleet.connected() == {}
    transport.says[7] = 1
    assert fleet.connected() == {}
    clock[0] = fleet_module.GREETING_RETRY + 1
    assert fleet.connected() == {1: 7}


def test_a_client_with_a_key_that_is_busy_when_flower_is_started_again_is_there(pems):
    folder, pem = pems
    transports = iter([Nodes({7: pem[0]}, says={7: 0}), Nodes({9: pem[0]})])
    fleet = Fleet(lambda: next(transports), keys.public_keys(folder), lambda _: None, greet)
    assert fleet.connected() == {0: 7}
    fleet.reconnect()
    assert fleet.connected() == {0: 9}


def test_waiting_ends_when_enough_are_there_or_the_time_is_over():
    transport = Nodes({7: b"", 8: b""}, says={7: 1, 8: 5})
    fleet = Fleet(lambda: transport, None, lambda _: None, greet)
    assert fleet.wait([0, 1], 1, 60) == {1: 7}
    assert fleet.wait([0, 1], 2, 0) == {1: 7}


def test_a_client_that_comes_a_moment_later_is_waited_for_and_one_that_does_not_come_is_not(
    monkeypatch,
):
    monkeypatch.setattr(fleet_module, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(fleet_module.time, "monotonic", lambda: float(len(looks)))
    transport = Nodes({7: b""}, says={7: 0, 8: 1, 9: 2})
    looks = []
    fleet = Fleet(lambda: transport, None, lambda _: None, greet)

    def nodes():
        looks.append(len(looks))
        return {7: b"", **({8: b""} if len(looks) > 5 else {}), **later}

    later = {}
    transport.nodes = nodes
    fleet.settle(range(3))
    assert fleet.connected() == {0: 7, 1: 8}
    assert len(looks) > 5 + fleet_module.SETTLE_TIME
    later[9] = b""
    looks.clear()
    fleet.settle(range(3))
    assert len(looks) == 6


def test_what_is_lost_is_made_anew_and_asked_again():
    transports = [Nodes({7: b""}, says={7: 1}), Nodes({9: b""}, says={9: 1})]
    made = iter(transports)
    fleet = Fleet(lambda: next(made), None, lambda _: None, greet)
    assert fleet.connected() == {1: 7}
    fleet.reconnect()
    assert fleet.connected() == {1: 9}
    assert [transport.closed for transport in transports] == [True, False]


def test_what_a_client_says_is_one_short_line_and_not_said_for_ever(pems, monkeypatch):
    folder, pem = pems
    clock = [0.0]
    monkeypatch.setattr(fleet_module.time, "monotonic", lambda: clock[0])
    transport, lines = Nodes({7: pem[0]}), []
    fleet = Fleet(lambda: transport, keys.public_keys(folder), lines.append, greet)
    for number in range(100):
        transport.says[7] = f"{number}\nfedkl: client 1 is gone\x1b[2J" + "x" * 10_000
        fleet.connected()
        clock[0] += fleet_module.GREETING_RETRY + 1
    assert len(lines) == fleet_module.MAX_COMPLAINTS
    assert lines[0].startswith("client 0 cannot take part: 0 fedkl: client 1 is gone?[2Jxxx")
    assert lines[-1].endswith("...; no more is said of it")
    assert all(line.isprintable() and len(line) < 300 for line in lines)


@pytest.mark.parametrize("by_keys", [True, False])
def test_all_who_are_connected_hear_that_the_run_is_over(pems, monkeypatch, by_keys):
    monkeypatch.setattr(fleet_module, "FAREWELL_TIMEOUT", 0.2)
    folder, pem = pems
    transport = Nodes({7: pem[0], 8: pem[1]}, says={7: 0, 8: 1})
    owners = keys.public_keys(folder) if by_keys else None
    fleet = Fleet(lambda: transport, owners, lambda _: None, greet)
    assert fleet.farewell() == 2
    said = ["client 0 farewell", "client 1 farewell"] if by_keys else [" farewell"] * 2
    assert [text for _, text in transport.told[2:]] == said
    fleet.connected()
    transport.says = {7: 0}
    assert fleet.farewell() == 1
    transport.connected = {}
    assert fleet.farewell() == 0


def test_a_node_whose_key_was_revoked_is_nobodys_and_a_new_key_is_greeted(pems):
    folder, pem = pems
    transport = Nodes({7: pem[0], 8: pem[1]}, says={7: 0, 8: 1, 9: 1})
    known = keys.public_keys(folder)
    fleet = Fleet(lambda: transport, known, lambda _: None, greet)
    assert fleet.connected() == {0: 7, 1: 8}
    assert fleet.rekey(known) == []
    assert fleet.rekey({0: known[0]}) == [1]
    assert fleet.connected() == {0: 7}
    new = ec.generate_private_key(ec.SECP384R1()).public_key()
    transport.connected[9] = new.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert fleet.connected() == {0: 7}
    assert fleet.rekey({0: known[0], 1: keys.normalised(transport.connected[9])}) == [1]
    assert fleet.connected() == {0: 7, 1: 9}
