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

from fedkl.network import LARGEST, keys
from fedkl.network.flower import api_guard
from fedkl.network.flower.api_guard import FLEET, OBJECT, PUSH, REGISTER, SMALL, WITHOUT_KEYS, Guard

SECRET = "ab" * 32
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
        path, headers=None, parts=(b"",), *, method="POST", known=True, paths=FLEET, kind="http"
    ):
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
        asyncio.run(Guard(app, SECRET, paths, everybody)(scope, receive, send))
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


@pytest.mark.parametrize(("path", "limit"), [(PULL, SMALL), (OBJECT, LARGEST + SMALL)])
def test_what_is_too_large_is_not_read(ask, folder, path, limit):
    said = {"content-length": str(limit + 1).encode()}
    assert ask(path, signed(folder) | said, [b"x"]) == (413, [])
    assert ask.unread == 1
    said = {"content-length": str(limit).encode()}
    assert ask(path, signed(folder) | said, [b"x"]) == (200, [b"x"])


def test_what_does_not_say_its_size_is_counted(ask, folder):
    parts = [b"x" * (SMALL // 4)] * 100
    assert ask(PULL, signed(folder), parts) == (None, ["hung up"])
    assert ask.unread == 95
    assert ask(PUSH, signed(folder), parts) == (413, [])
    assert ask.unread == 95


def test_a_socket_is_closed(ask):
    assert ask("/", kind="websocket") == (None, [])


def test_every_server_of_the_process_is_wrapped(monkeypatch):
    monkeypatch.setattr(uvicorn.Config, "__init__", uvicorn.Config.__init__)
    api_guard.install(lambda app: (app, "wrapped"))

    async def app(*_):
        """Nothing."""

    assert uvicorn.Config(app=app).app == (app, "wrapped")
    assert uvicorn.Config(app, port=1).app == (app, "wrapped")
