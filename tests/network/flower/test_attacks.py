"""A real federation under attack: by an outsider, by one of its clients, by another user of the
machine, and by Flower's server itself. Nothing comes of it, and the result is bit for bit that of a
simulation.
"""

import base64
import contextlib
import datetime
import os
import socket
import ssl
import threading
import time
from pathlib import Path

import httpx
import jax
import numpy as np
import pytest
from waiting import until

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, RecordDict
from flwr.app import Message as AppMessage
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StopRunRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import GetNodesRequest, PullTaskInputRequest
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.fleet_http_connection import http_request_response
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from left_behind import nothing_is_left_of

import fedkl
from fedkl.network import checks, keys, messages, wire
from fedkl.network.client import NetworkClient
from fedkl.network.client_process import REFUSED
from fedkl.network.exchange import Exchange, RequestStamp
from fedkl.network.flower import secret
from fedkl.network.flower.engine import Flower, Screen
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.key_rotation import KeyRotation
from fedkl.network.flower.relay_client import NodeMessage
from fedkl.network.flower.superlink import SuperLink
from fedkl.network.flower.supervisor import LocalClients, local_nodes
from fedkl.network.messages import new_federation, new_nonce, read_request, write_request
from fedkl.network.signatures import Signer, Verifier
from fedkl.network.status import FleetStatus
from fedkl.server.loop import Federation

CLIENTS, MALICIOUS = 2, 2
"""Client 2 is one of the federation, and obeys nobody."""
SERVER = 1
"""The number of Flower's server among its nodes."""
TINY = {
    "federation.clients": 3,
    "federation.clients_per_round": 3,
    "federation.deadline": 30.0,
    "federation.retries": 0,
    "federation.rounds": 3,
    "learner.iterations": 1,
    "learner.steps": 16,
    "learner.minibatch": 16,
    "learner.epochs": 1,
    "evaluation.every": 100,
}


class Attacked:
    """A federation, and what attacks on it need."""

    def __init__(self, folder, config):
        self.folder, self.config = folder, config
        self.keys = folder / "keys"
        keys.make(self.keys, 3)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.engine = Flower(config, new_federation(), 60, Screen(print, lambda _: None))
        self.engine.signer = Signer(self.keys)
        largest = self.engine.largest_answer
        self.link = SuperLink(folder / "flower", "127.0.0.1", port, self.keys, largest)
        self.engine.traffic = self.link.traffic
        self.address = self.link.address
        self.nodes = local_nodes(self.address, folder, self.keys, CLIENTS, [])
        self.lines = []

    def client(self, kind, key=None, *more):
        """One of Flower's own clients; with a pair of keys, if it is to have some."""
        interceptors = [*more] if key is None else [NodeAuthHttpInterceptor(*key), *more]
        ca = (self.keys / "ca.crt").read_bytes()
        return kind.from_server_address(self.address, False, ca, interceptors)

    def pair(self, number):
        private = keys.forms.load_ssh_private_key(
            (self.keys / f"client-{number}.key").read_bytes(), None
        )
        return private, private.public_key()

    def asked(self, message):
        """What a client says to something that is said in the server's name."""
        (id,) = self.fleet.push([message])
        (answer,) = until(lambda: list(self.fleet.pull({id: 1 << 20})))
        return answer.content


class Stalling(threading.Thread):
    """A client that takes part, and announces what it has trained, and never sends it."""

    def __init__(self, attacked):
        super().__init__(daemon=True)
        self.announced = 0
        self._attacked = attacked
        self._over = threading.Event()
        folder = attacked.keys
        self._verifier = Verifier.of(folder / "ca.crt", folder / f"client-{MALICIOUS}.key")
        (attacked.folder / "malicious").mkdir()
        self._resident = NetworkClient(attacked.folder / "malicious", MALICIOUS)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join(10)
        self._resident.close()

    def run(self):
        address, pair = self._attacked.address, self._attacked.pair(MALICIOUS)
        ca = (self._attacked.keys / "ca.crt").read_bytes()
        with http_request_response(address, False, ca, pair) as connection:
            _, receive, send, _, _, pull, push, confirm = connection
            while not self._over.wait(0.1):
                if (received := receive()) is not None:
                    self._answer(*received, send, pull, push, confirm)

    def _answer(self, message, tree, send, pull, push, confirm):
        run, number = message.metadata.run_id, message.metadata.message_id
        ids = [one.object_id for one in iterate_object_tree(tree)]
        contents = pull_objects(ids, lambda id: pull(run, id))
        confirm(run, number)
        asked = inflate_object_from_contents(number, contents)
        asked.metadata.__dict__["_message_id"] = number
        content = self._verifier.content(asked.content["work"]["blob"])
        said = self._resident.answer(content)
        record = ConfigRecord({"blob": said, "client": MALICIOUS})
        reply = AppMessage(RecordDict({"work": record}), reply_to=asked)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = get_all_nested_objects(reply)
        _, session = send(reply, get_object_tree(reply), 0.0)
        if wire.kind_of(content) != messages.GREETING:
            self.announced += 1
            return
        for id, one in objects.items():
            push(run, session, id, one.deflate())


@pytest.fixture
def attacked(tmp_path, quick_compilation):
    made = Attacked(tmp_path, fedkl.preset("probe-point", "fedkl", 0, TINY))
    clients = LocalClients(made.nodes, print)
    tmp_path.chmod(0o700)
    try:
        owners = keys.public_keys(made.keys)
        made.fleet = Fleet(made.link.connect, owners, made.lines.append, made.engine.greet)
        clients.start()
        assert sorted(made.fleet.wait(range(CLIENTS), CLIENTS, 120)) == [0, 1]
        yield made
        made.fleet.close()
    finally:
        clients.stop()
        made.link.stop()
    nothing_is_left_of(tmp_path)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found by /proc")
def test_a_federation_under_attack_learns_the_bits_of_a_simulation(attacked):
    # One test, so that one federation serves all of it.
    an_outsider_finds_the_port_closed(attacked)
    large_bodies_are_refused_before_they_are_read(attacked)
    a_client_can_answer_and_nothing_else(attacked)
    other_users_of_the_machine_find_the_ports_closed(attacked)
    what_is_forged_in_the_name_of_the_server_is_not_heard(attacked)
    keys_and_certificates_change_without_a_restart(attacked)
    with Stalling(attacked) as stalling:
        assert sorted(attacked.fleet.wait(range(3), 3, 60)) == [0, 1, 2]
        attacked.engine.start(attacked.fleet)
        there, here = Federation(attacked.config, attacked.engine), Federation(attacked.config)
        for number in (1, 2):
            record = there.run_round()
            # Who did it is named, and nobody else; and it costs a deadline, as to be silent would.
            assert record["rejected"] == [
                {"client": MALICIOUS, "reason": "it did not answer within 30 s"}
            ]
            assert record["seconds"] < 35
            assert stalling.announced == number
    compare(there, here, {MALICIOUS})


def compare(there, here, absent):
    """The same rounds, in this process, without those who were absent."""
    run = here.engine.run

    def without(work, model, jobs, key):
        for client, answer in run(work, model, jobs, key):
            gone = fedkl.engines.base.Failure("it is not connected", again=False)
            yield client, gone if client in absent else answer

    here.engine.run = without
    for _ in range(2):
        here.run_round()
    same = jax.tree.map(np.array_equal, there.state, here.state)
    assert all(jax.tree.leaves(same))


def refused(call, *arguments):
    """The status with which a call is refused."""
    with pytest.raises(httpx.HTTPStatusError) as caught:
        call(*arguments)
    return caught.value.response.status_code


def an_outsider_finds_the_port_closed(attacked):
    trusted = ssl.create_default_context(cafile=str(attacked.keys / "ca.crt"))
    with httpx.Client(verify=trusted, base_url=f"https://{attacked.address}") as anybody:
        for path in ("/docs", "/openapi.json", "/health", "/v1/responses", "/"):
            assert anybody.get(path).status_code == 403
    own = generate_key_pairs()
    public = public_key_to_bytes(own[1])
    with attacked.client(ControlHttpClient) as control:
        assert refused(control.ListNodes, ListNodesRequest()) == 403
        assert refused(control.RegisterNode, RegisterNodeRequest(public_key=public)) == 403
        assert refused(control.StopRun, StopRunRequest(run_id=1)) == 403
    with attacked.client(FleetHttpClient, own) as fleet:
        asked = RegisterNodeFleetRequest(public_key=public)
        assert refused(fleet.RegisterNode, asked) == 403
        asked = ActivateNodeRequest(public_key=public, heartbeat_interval=30)
        assert refused(fleet.ActivateNode, asked) == 412


def memory(attacked):
    """Megabytes of Flower's server."""
    pid = attacked.link._processes["superlink"].pid
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def large_bodies_are_refused_before_they_are_read(attacked):
    host, port = checks.parse_address(attacked.address)
    trusted = ssl.create_default_context(cafile=str(attacked.keys / "ca.crt"))
    before = memory(attacked)
    own = "".join(f"{name}: {value.decode()}\r\n" for name, value in signature(attacked).items())
    for path, key, status in (
        ("/v1/fleet/push-object", "", 412),
        ("/v1/control/start-run", "", 403),
        ("/v1/fleet/push-object", own, 413),
        ("/v1/fleet/push-messages", own, 413),
    ):
        for size in ("content-length: 400000000", "transfer-encoding: chunked"):
            with (
                socket.create_connection((host, port), 20) as plain,
                trusted.wrap_socket(plain, server_hostname=host) as connection,
            ):
                head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\n{key}{size}\r\n\r\n"
                connection.sendall(head.encode())
                if not key or "length" in size:
                    assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode())
                part = b"f4240\r\n" * ("chunked" in size) + b"x" * 1_000_000 + b"\r\n"
                with contextlib.suppress(OSError):  # it has hung up
                    for _ in range(400):
                        connection.sendall(part)
    # As much as an answer may have, for each connection that was at it.
    assert memory(attacked) < before + 40
    assert attacked.link.traffic()["traffic_received"] > 0


def signature(attacked):
    """By which Flower knows a client."""
    private, public = attacked.pair(MALICIOUS)
    now = datetime.datetime.now(datetime.UTC).isoformat().encode()
    sealed = private.sign(now, keys.ec.ECDSA(keys.hashes.SHA256()))
    pem = public.public_bytes(keys.forms.Encoding.PEM, keys.forms.PublicFormat.SubjectPublicKeyInfo)
    return {
        "flwr-public-key": base64.b64encode(pem),
        "flwr-signature": base64.b64encode(sealed),
        "flwr-timestamp": now,
    }


def a_client_can_answer_and_nothing_else(attacked):
    there = attacked.fleet.connected()
    own = attacked.pair(MALICIOUS)
    public = public_key_to_bytes(own[1])
    with attacked.client(ControlHttpClient) as control:
        assert refused(control.ListNodes, ListNodesRequest()) == 403
    with attacked.client(FleetHttpClient, own) as fleet:
        asked = ActivateNodeRequest(public_key=public, heartbeat_interval=30)
        node = fleet.ActivateNode(asked).node_id
        # It is one of the federation, and does not get through to anybody else.
        for source, to in ((SERVER, ""), (node, ""), (there[0], "some message")):
            metadata = Metadata(
                run_id=1, message_id="m", src_node_id=source, dst_node_id=there[0],
                reply_to_message_id=to, ttl=100.0, message_type="query", created_at=time.time(),
            )  # fmt: skip
            asked = PushMessagesRequest(
                node=Node(node_id=node),
                messages_list=[Message(metadata=metadata)],
                message_object_trees=[ObjectTree(object_id="m")],
            )
            assert refused(fleet.PushMessages, asked) == 403
        asked = PullMessagesRequest(node=Node(node_id=there[0]))
        assert refused(fleet.PullMessages, asked) == 401
        fleet.DeactivateNode(DeactivateNodeRequest(node_id=node))


def keys_and_certificates_change_without_a_restart(attacked):
    said = []
    status = FleetStatus()
    parts = (attacked.link, attacked.fleet, attacked.engine.signer, status, said.append)
    rotation = KeyRotation(attacked.keys, *parts)
    own = attacked.pair(MALICIOUS)
    asked = ActivateNodeRequest(public_key=public_key_to_bytes(own[1]), heartbeat_interval=30)

    def activates():
        with attacked.client(FleetHttpClient, own) as fleet:
            try:
                node = fleet.ActivateNode(asked).node_id
                fleet.DeactivateNode(DeactivateNodeRequest(node_id=node))
            except httpx.HTTPStatusError:  # the key may also be revoked between the two
                return False
            return True

    assert activates()
    (attacked.keys / f"client-{MALICIOUS}.pub").unlink()
    until(lambda: not activates())
    rotation.poll()
    assert said == [f"the keys of clients {MALICIOUS} have changed"]
    # A new one of the same client, and a new certificate.
    (attacked.keys / f"client-{MALICIOUS}.key").unlink()
    shown = certificate(attacked)
    (attacked.keys / "server.crt").unlink()
    keys.make(attacked.keys, 3, days=20)
    until(lambda: certificate(attacked) != shown)
    rotation.poll()
    assert said[1:] == [f"the keys of clients {MALICIOUS} have changed"]
    assert status.expires < time.time() + 21 * 86400
    assert not activates()
    own = attacked.pair(MALICIOUS)
    asked = ActivateNodeRequest(public_key=public_key_to_bytes(own[1]), heartbeat_interval=30)
    until(activates)
    # Clients that were there are, and obey what the new certificate vouches for.
    there = attacked.fleet.connected()
    assert sorted(there) == [0, 1]
    signed = attacked.engine.signer.sign(0, b"")
    assert attacked.asked(NodeMessage(there[0], signed, 60.0)) == b""


def certificate(attacked):
    """The certificate that the server shows."""
    host, port = checks.parse_address(attacked.address)
    trusted = ssl.create_default_context(cafile=str(attacked.keys / "ca.crt"))
    with (
        socket.create_connection((host, port), 20) as plain,
        trusted.wrap_socket(plain, server_hostname=host) as connection,
    ):
        return connection.getpeercert(binary_form=True)


def commands():
    """The command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().decode(errors="replace").split("\0")


def other_users_of_the_machine_find_the_ports_closed(attacked):
    """They see command lines, and reach every port on loopback."""
    ours = [line for line in commands() if attacked.address in line]
    tokens = [line[line.index("--token") + 1] for line in ours if "--token" in line]
    for token in tokens:
        with attacked.client(
            RuntimeHttpClient, None, RuntimeTokenHttpInterceptor(token)
        ) as runtime:
            assert refused(runtime.GetNodes, GetNodesRequest()) == 403
    nodes = [line for line in ours if "--superlink" in line and "--port" in line]
    ports = {line[line.index("--port") + 1] for line in nodes}
    assert len(ports) == CLIENTS
    for port in ports:
        with RuntimeHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, []) as runtime:
            assert refused(runtime.PullTaskInput, PullTaskInputRequest()) == 403
        assert httpx.get(f"http://127.0.0.1:{port}/docs").status_code == 403
    assert tokens
    shown = secret.read(attacked.link._environment())
    assert not any(shown in word for line in commands() for word in line)
    scratch = Path(attacked.link._environment()[secret.FILE]).parent
    assert (scratch.stat().st_mode & 0o777, scratch.stat().st_uid) == (0o700, os.getuid())


def what_is_forged_in_the_name_of_the_server_is_not_heard(attacked):
    """Even if it comes by way of Flower's own server."""
    node = attacked.fleet.connected()[0]
    folder = attacked.nodes[0].place.folder
    exchange = Exchange(attacked.config, attacked.engine._exchange.federation)
    last = exchange.greeting(0, RequestStamp(0, 2**62, 0, new_nonce()), "you have lost")
    other = attacked.folder / "other"
    keys.make(other, 3)
    train = request_of(attacked, 2**62)
    before = sorted(path.name for path in folder.iterdir())
    for forged, reason in (
        (b"", "it is not signed"),
        (last, "it is not signed"),
        (Signer(other).sign(0, last), "not signed by the server of this federation"),
        # What client 2 was sent itself, it may try to pass on.
        (Signer(attacked.keys).sign(MALICIOUS, last), "it is for another client"),
        (train, "it is not signed"),
    ):
        for seconds in (60.0, 5.0):
            assert reason in attacked.asked(NodeMessage(node, forged, seconds))
    assert not (folder / REFUSED).exists()
    assert sorted(path.name for path in folder.iterdir()) == before
    assert sorted(attacked.fleet.connected()) == [0, 1]


def request_of(attacked, turn):
    """A request to train with a turn that is later than all others."""
    signed = []

    class Looking(Signer):
        def sign(self, client, content):
            signed.append(content)
            return super().sign(client, content)

    engine = Flower(attacked.config, new_federation(), 1, Screen(print, lambda _: None))
    engine.signer = Looking(attacked.keys)
    engine._fleet = attacked.fleet
    loop = Federation(attacked.config, engine)
    loop.run_round()
    return write_request(read_request(signed[0])._replace(turn=turn))
