"""A guard in front of Flower's API, which refuses all that a caller has no right to.

Flower serves all of its API on one port. With our secret (`secret`) all of it can be used. Without,
a client with a key of the federation may connect, fetch messages and answer them. Refused are: to
submit or stop an app, to list or register nodes, to act as the app, to read the documentation, to
send a message that is no answer, and, before it is read, a body that is too large. Bytes of clients
are counted (`TRAFFIC`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import ssl
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
)
from typing import Any, NamedTuple

import uvicorn
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fedkl.network import MAX_MESSAGE_BYTES
from fedkl.network.flower.secret import HEADER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

REGISTER, PUSH, OBJECT = (
    f"/v1/fleet/{name}" for name in ("register-node", "push-messages", "push-object")
)
FLEET = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages",
        "push-messages", "get-run", "get-fab", "push-object", "pull-object",
        "confirm-message-received",
    )
)  # fmt: skip
"""Paths that a client needs."""
WITHOUT_KEYS = FLEET | {REGISTER, "/v1/fleet/unregister-node"}
"""Paths that a client without a key needs: it makes one, and registers it."""
MAX_SMALL_BYTES = 1 << 20
"""Bytes of a request, unless it carries a part of an answer."""
MAX_PARTS = 16
"""Parts that an answer may have; one of ours has four."""
MAX_PARTS_AT_ONCE = 8
"""Parts of answers that one client may be sending."""
TRAFFIC = "/fedkl/traffic"
"""Path of the count of bytes that clients have sent and received; it needs the secret."""
_UNKNOWN, _WITHOUT = 2004, 2001
"""Flower's error codes: an unknown key, and a missing key."""
_SIGNED = (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)


class Refusal(NamedTuple):
    """The response to a request that is refused."""

    status: int
    detail: str
    code: int | None = None
    """Flower's error code."""


class Traffic:
    """Counter of the bytes of clients' HTTP messages: bodies and headers, without TLS and TCP."""

    def __init__(self) -> None:
        self.received = self.sent = 0

    def counting(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """Return `receive` and `send` of a request such that they count."""
        line = len(scope["method"]) + len(scope["path"]) + len("  HTTP/1.1\r\n\r\n")
        self.received += line + _written(scope["headers"])

        async def receive_counted() -> MutableMapping[str, Any]:
            message = await receive()
            self.received += len(message.get("body", b""))
            return message

        async def send_counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.sent += len("HTTP/1.1 200 OK\r\n\r\n") + _written(message.get("headers", ()))
            self.sent += len(message.get("body", b""))
            await send(message)

        return receive_counted, send_counted


class Guard:
    """An ASGI app around Flower's."""

    def __init__(
        self,
        app: App,
        secret: str,
        paths: Collection[str],
        keys: Collection[bytes] | None,
        largest: int = MAX_MESSAGE_BYTES,
    ) -> None:
        """Args:
        app: Flower's.
        secret: with which everything is allowed.
        paths: that are allowed without it.
        keys: clients' public keys, as `keys.normalised` has them, one of which is needed without
            the secret; Flower checks the signature, and for a large body this does, before it is
            read. None: no key is needed.
        largest: bytes that an answer may have.
        """
        self._app = app
        self._secret = secret.encode()
        self._paths = paths
        self._largest = largest
        self._traffic = Traffic()
        self._sending: Counter[bytes] = Counter()
        """Parts of answers that are on their way, by key."""
        self._keys: dict[bytes, ec.EllipticCurvePublicKey] | None = None
        """By the value of a SuperNode's header, so that a stranger's is never decoded."""
        if keys is not None:
            self.rekey(keys)

    def rekey(self, keys: Collection[bytes]) -> None:
        """Replace the clients' keys; a client with another key is refused, also if connected."""
        self._keys = {base64.b64encode(pem): _loaded(pem) for pem in keys}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request that is allowed, and refuse another."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        names = [name.decode("latin-1") for name, _ in scope["headers"]]
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        if hmac.compare_digest(headers.get(HEADER, b""), self._secret):
            if scope["path"] == TRAFFIC:
                return await _answer(send, 200, vars(self._traffic))
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        receive, send = self._traffic.counting(scope, receive, send)
        limit = self._largest + MAX_SMALL_BYTES if scope["path"] == OBJECT else MAX_SMALL_BYTES
        too_large = Refusal(413, f"more than {limit} bytes")
        refusal = self._refusal(scope, headers)
        if any(names.count(name) > 1 for name in (*_SIGNED, "content-length")):
            refusal = Refusal(400, "a header is there twice")
        if refusal is None and _length(headers) > limit:
            refusal = too_large
        limited = _Limited(receive, limit)
        if refusal is None and scope["path"] == PUSH:
            body = await limited.whole()
            refusal = too_large if body is None else _problem_with(body)
            limited.again(body)
        sender = headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER, b"") if scope["path"] == OBJECT else b""
        if refusal is None and self._sending[sender] >= MAX_PARTS_AT_ONCE:
            refusal = Refusal(429, f"more than {MAX_PARTS_AT_ONCE} parts of answers at once")
        if refusal is not None:
            return await _refuse(send, refusal)
        self._sending[sender] += bool(sender)
        try:
            await self._app(scope, limited, send)
        finally:
            self._sending[sender] -= bool(sender)
            self._sending += Counter()  # those that have none are forgotten

    def _refusal(self, scope: Scope, headers: Mapping[str, bytes]) -> Refusal | None:
        """Return the refusal of a request by its method, path and headers, or None."""
        if self._keys is not None and scope["path"] == REGISTER:
            return Refusal(403, "every client needs a key here", _WITHOUT)
        if scope["method"] != "POST" or scope["path"] not in self._paths:
            return Refusal(403, "not without the secret of fedkl")
        if self._keys is None:
            return None
        key = self._keys.get(headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER, b""))
        # What is small Flower may read before it looks at the signature, as it does at every one.
        if key is None or (scope["path"] == OBJECT and not _signed_by(headers, key)):
            return Refusal(412, "the key is not one of this federation", _UNKNOWN)
        return None


class _Limited:
    """A `receive` that ends a body which is over the limit."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit
        self._again: bytes | None = None

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._again is not None:
            body, self._again = self._again, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        # Flower takes it for a closed connection.
        return message if self._left >= 0 else {"type": "http.disconnect"}

    async def whole(self) -> bytes | None:
        """Return the whole body; None: it is too large, or was cut off."""
        parts, more = [], True
        while more:
            message = await self()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(parts)

    def again(self, body: bytes | None) -> None:
        """Give this body to the next call."""
        self._again = body


def install(
    wrap: Callable[[App], App], secured: Callable[[ssl.SSLContext], None] = lambda context: None
) -> None:
    """Wrap the app of every server that is started in this process.

    Args:
        wrap: returns the app that is served instead.
        secured: is called with the server's TLS context.
    """
    begin, load = uvicorn.Config.__init__, uvicorn.Config.load

    def load_and_report(self: uvicorn.Config) -> None:
        load(self)
        if self.ssl is not None:
            secured(self.ssl)

    def begin_wrapped(self: uvicorn.Config, app: Any, *arguments: Any, **options: Any) -> None:
        begin(self, wrap(app), *arguments, **options)

    uvicorn.Config.__init__ = begin_wrapped  # type: ignore[method-assign]  # Flower makes it
    uvicorn.Config.load = load_and_report  # type: ignore[method-assign]


def _loaded(pem: bytes) -> ec.EllipticCurvePublicKey:
    key = forms.load_pem_public_key(pem)
    assert isinstance(key, ec.EllipticCurvePublicKey), "no other is in a federation"
    return key


def _signed_by(headers: Mapping[str, bytes], key: ec.EllipticCurvePublicKey) -> bool:
    """Return True if a key has signed a request as Flower's SuperNodes do."""
    try:
        _, signature, timestamp = (headers[name] for name in _SIGNED)
        sealed = base64.b64decode(signature, validate=True)
        key.verify(sealed, timestamp, ec.ECDSA(hashes.SHA256()))
    except (KeyError, binascii.Error, InvalidSignature):
        return False
    return True


def _length(headers: Mapping[str, bytes]) -> int:
    """Return the content length that a header gives; 0: none, and the body is counted."""
    said = headers.get("content-length", b"0")
    return int(said) if said.isdigit() else 0


def _problem_with(body: bytes) -> Refusal | None:
    """Return the refusal of messages that are not answers in the sender's own name, or None."""
    try:
        asked = PushMessagesRequest.FromString(body)
    except DecodeError:
        return Refusal(400, "that is no message")
    for message in asked.messages_list:
        if not message.metadata.reply_to_message_id:
            return Refusal(403, "only the server of fedkl asks: this answers nothing")
        if message.metadata.src_node_id != asked.node.node_id:
            return Refusal(403, "this is in the name of another")
    if sum(map(_parts, asked.message_object_trees)) > MAX_PARTS:
        return Refusal(413, f"more than {MAX_PARTS} parts")
    return None


def _parts(tree: ObjectTree) -> int:
    """Return the number of announced parts."""
    waiting, number = [tree], 0
    while waiting:
        number += 1
        waiting += waiting.pop().children
    return number


def _written(headers: Iterable[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) + len(": \r\n") for name, value in headers)


async def _refuse(send: Send, refusal: Refusal) -> None:
    content: dict[str, Any] = {"detail": f"fedkl: {refusal.detail}"}
    if refusal.code is not None:
        content["code"] = refusal.code
    await _answer(send, refusal.status, content)


async def _answer(send: Send, status: int, content: Mapping[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        # The rest of a body that is not read must not be taken for the next request.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
