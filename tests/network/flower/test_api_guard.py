"""In front of Flower's API: who may do what, and how much is read of whom."""

import asyncio
import base64
import json

import pytest

pytest.importorskip("flwr")

import uvicorn
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node

from fedkl.network import keys
from fedkl.network.flower import api_guard
from fedkl.network.flower.api_guard import (
    FLEET,
    MAX_PARTS,
    MAX_PARTS_AT_ONCE,
    MAX_SMALL_BYTES,
    OBJECT,
    PUSH,
    REGISTER,
    TRAFFIC,
    WITHOUT_KEYS,
    Guard,
)

SECRET = "ab" * 32
ANSWER = 3 << 20
PULL = "/v1/fleet/pull-messages"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guard") / "keys"
    keys.make(folder, 2)
    return folder


@pytest.fixture
def ask(folder):
    """Asks what is behind a guard; what it answered, and what reached it."""

    def do(
        path, headers=None, parts=(b"",), *, method="POST", known=True, paths=FLEET, kind="http",
        guard=None,
    ):  # fmt: skip
        came, sent = [], []
        left = list(parts)

        async def app(scope, receive, send):
            body, more = b"", True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    came.append("hung up")
                    return
                body += message["body"]
                more = message["more_body"]
            came.append(body)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"done"})

        async def receive():
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        async def send(message):
            sent.append(message)

        listed = headers.items() if isinstance(headers, dict) else headers or []
        found = [(name.encode(), value) for name, value in listed]
        scope = {"type": kind, "method": method, "path": path, "headers": found}
        everybody = {*keys.public_keys(folder).values()} if known else None
        guard = guard or Guard(app, SECRET, paths, everybody, ANSWER)
        asyncio.run(guard(scope, receive, send))
        do.guard, do.sent = guard, sent
        do.unread = len(left)
        do.said = json.loads(sent[1]["body"]) if sent and sent[0].get("status", 0) >= 400 else {}
        return sent[0].get("status") if sent else None, came

    return do


def signed(folder, name="client-0.key", timestamp=b"2026-01-02T03:04:05+00:00"):
    """The headers of a client."""
    key = load_ssh_private_key((folder / name).read_bytes(), None)
    signature = key.sign(timestamp, ec.ECDSA(hashes.SHA256()))
    public = keys.public_key_of(folder / name)
    return {
        "flwr-public-key": base64.b64encode(public),
        "flwr-signature": base64.b64encode(signature),
        "flwr-timestamp": timestamp,
    }


@pytest.mark.parametrize(
    "path",
    ["/docs", "/openapi.json", "/health", "/v1/control/start-run", "/v1/control/list-nodes",
     "/v1/control/register-node", "/v1/runtime/get-nodes", "/v1/runtime/push-messages",
     "/v1/fleet/unregister-node", "/v1/fleet/../control/stop-run", "//v1/fleet/pull-messages", ""],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_secret_there_is_only_what_clients_need(ask, folder, path, method):
    for headers in ({}, signed(folder), {"fedkl-secret": b"ab"}, {"fedkl-secret": b""}):
        assert ask(path, headers, method=method) == (403, [])
    assert ask(path, {"fedkl-secret": SECRET.encode()}, [b"x"], method=method) == (200, [b"x"])


def test_a_client_reaches_what_it_needs_by_its_key_and_nobody_else_does(ask, folder, tmp_path):
    for path in FLEET - {PUSH}:
        assert ask(path, signed(folder), [b"a", b"b"]) == (200, [b"ab"])
        assert ask(path, signed(folder), method="GET") == (403, [])
    keys.make(tmp_path / "keys", 1)
    both = signed(folder, "client-1.key")
    for headers in ({}, signed(tmp_path / "keys"), signed(folder) | {"flwr-public-key": b"AAAA"}):
        assert ask(PULL, headers, [b"x" * 10, b"y"]) == (412, [])
        assert ask.said["code"] == 2004
    # What may be large is read only from who has signed it.
    for headers in (
        {},
        signed(tmp_path / "keys"),
        signed(folder) | {"flwr-timestamp": b"2027-01-02T03:04:05+00:00"},
        signed(folder) | {"flwr-signature": b"?"},
        signed(folder) | {"flwr-public-key": both["flwr-public-key"]},
        signed(folder) | {"flwr-public-key": b"AAAA"},
    ):
        assert ask(OBJECT, headers, [b"x" * 10, b"y"]) == (412, [])
        assert ask.said["code"] == 2004  # as Flower says it, so that `fedkl join` has a sentence
        assert ask.unread == 2
    twice = [*signed(folder).items(), *both.items()]
    assert ask(PULL, twice) == (400, [])


def test_where_clients_have_no_keys_they_name_their_own(ask):
    assert ask(REGISTER, paths=WITHOUT_KEYS, known=False) == (200, [b""])
    assert ask(PULL, paths=WITHOUT_KEYS, known=False) == (200, [b""])
    assert ask("/v1/control/list-nodes", paths=WITHOUT_KEYS, known=False) == (403, [])
    assert ask(REGISTER) == (403, [])
    assert ask.said["code"] == 2001


def pushed(node, *messages):
    listed = [
        Message(metadata=Metadata(src_node_id=source, dst_node_id=9, reply_to_message_id=to))
        for source, to in messages
    ]
    return PushMessagesRequest(node=Node(node_id=node), messages_list=listed).SerializeToString()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (pushed(5, (5, "asked")), 200),
        (pushed(5, (5, "")), 403),
        (pushed(5, (1, "")), 403),
        (pushed(5, (6, "asked")), 403),
        (pushed(5, (5, "asked"), (1, "")), 403),
        (b"\xff\xff", 400),
    ],
    ids=["an answer", "a question", "as the server", "as another", "both", "noise"],
)
def test_a_client_answers_in_its_own_name_and_asks_nothing(ask, folder, body, status):
    halves = [body[:7], body[7:]]
    assert ask(PUSH, signed(folder), halves) == (status, [body] if status == 200 else [])
    assert ask(PUSH, {}, [body], known=False)[0] == status


@pytest.mark.parametrize(
    ("path", "limit"), [(PULL, MAX_SMALL_BYTES), (OBJECT, ANSWER + MAX_SMALL_BYTES)]
)
def test_what_is_too_large_is_not_read_of_anybody(ask, folder, path, limit):
    said = {"content-length": str(limit + 1).encode()}
    assert ask(path, signed(folder) | said, [b"x"]) == (413, [])
    assert ask.unread == 1
    said = {"content-length": str(limit).encode()}
    assert ask(path, signed(folder) | said, [b"x"]) == (200, [b"x"])


def test_what_does_not_say_its_size_is_counted(ask, folder):
    parts = [b"x" * (MAX_SMALL_BYTES // 4)] * 100
    assert ask(PULL, signed(folder), parts) == (None, ["hung up"])
    assert ask.unread == 95
    assert ask(PUSH, signed(folder), parts) == (413, [])
    assert ask.unread == 95


def announced(*trees):
    """An answer with so many parts, below each other or beside each other."""
    body = PushMessagesRequest.FromString(pushed(5, (5, "asked")))
    for depth, width in trees:
        tree = body.message_object_trees.add(object_id="a")
        for _ in range(width - 1):
            tree.children.add(object_id="b")
        for _ in range(depth - 1):
            tree = tree.children.add(object_id="c")
    return body.SerializeToString()


@pytest.mark.parametrize("shape", [(MAX_PARTS, 1), (1, MAX_PARTS)])
def test_an_answer_has_few_parts(ask, folder, shape):
    assert ask(PUSH, signed(folder), [announced(shape)])[0] == 200
    assert ask(PUSH, signed(folder), [announced(shape, (1, 1))])[0] == 413


def test_a_client_sends_few_parts_at_once(folder):
    there, inside = [], []

    async def app(scope, receive, send):
        inside.append(await receive())
        await there[0].wait()

    async def everybody():
        there.append(asyncio.Event())
        guard = Guard(app, SECRET, FLEET, {*keys.public_keys(folder).values()}, ANSWER)
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"x", "more_body": False}

        async def send(message):
            sent.append(message.get("status"))

        def begin(name, path=OBJECT):
            headers = [(name.encode(), value) for name, value in signed(folder, name).items()]
            scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
            return asyncio.create_task(guard(scope, receive, send))

        tasks = [begin("client-0.key") for _ in range(MAX_PARTS_AT_ONCE + 3)]
        await asyncio.sleep(0)
        tasks += [begin("client-1.key"), begin("client-0.key", PULL)]
        await asyncio.sleep(0)
        assert len(inside) == MAX_PARTS_AT_ONCE + 2
        assert [status for status in sent if status] == [429] * 3
        there[0].set()
        await asyncio.gather(*tasks)
        tasks = [begin("client-0.key")]
        await asyncio.gather(*tasks)
        assert len(inside) == MAX_PARTS_AT_ONCE + 3

    asyncio.run(everybody())


def test_what_crosses_is_counted_and_told_to_who_has_the_secret(ask, folder):
    ask(PULL, signed(folder), [b"x" * 1000, b"y" * 500])
    ask("/docs", {"name": b"v" * 100}, guard=ask.guard)
    assert ask(TRAFFIC, guard=ask.guard) == (403, [])
    assert ask(TRAFFIC, {"fedkl-secret": SECRET.encode()}, guard=ask.guard) == (200, [])
    found = json.loads(ask.sent[1]["body"])
    assert found.keys() == {"received", "sent"}
    assert 1500 + 100 < found["received"] < 1500 + 100 + 1000
    assert 0 < found["sent"] < 1000


def test_a_key_that_is_revoked_is_refused_from_then_on(ask, folder):
    assert ask(PULL, signed(folder))[0] == 200
    known = keys.public_keys(folder)
    ask.guard.rekey({known[1]})
    assert ask(PULL, signed(folder), guard=ask.guard) == (412, [])
    assert ask(PULL, signed(folder, "client-1.key"), guard=ask.guard)[0] == 200


def test_a_socket_is_closed(ask):
    assert ask("/", kind="websocket") == (None, [])


FILES = (("cert", "crt"), ("key", "key"))


def test_every_server_of_the_process_is_wrapped(monkeypatch, tmp_path):
    monkeypatch.setattr(uvicorn.Config, "__init__", uvicorn.Config.__init__)
    monkeypatch.setattr(uvicorn.Config, "load", uvicorn.Config.load)
    shown = []
    api_guard.install(lambda app: (app, "wrapped"), shown.append)

    async def app(*_):
        """Nothing."""

    assert uvicorn.Config(app=app).app == (app, "wrapped")
    assert uvicorn.Config(app, port=1).app == (app, "wrapped")
    assert shown == []
    keys.make(tmp_path / "keys", 1)
    files = {f"ssl_{name}file": tmp_path / "keys" / f"server.{end}" for name, end in FILES}
    secured = uvicorn.Config(app, interface="asgi3", ws="none", **files)
    secured.load()
    assert shown == [secured.ssl]
