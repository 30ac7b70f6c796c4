"""Messages to the nodes of a SuperLink and back, by way of the relay.

`fedkl serve` and the relay talk over a Unix socket, in frames: a JSON header, and some blobs.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

_LENGTHS = struct.Struct(">II")
_LENGTH = struct.Struct(">Q")
_WAKE_INTERVAL = 0.5
"""Seconds of a system call at most. Flower raises a signal in a thread when the parent is gone, and
Python handles it only when the main thread is out of its system call."""
ANSWER_TIMEOUT = 120.0
"""Seconds for the relay to answer a request."""


class Frame(NamedTuple):
    """A message between `fedkl serve` and the relay."""

    header: dict[str, Any]
    blobs: list[bytes]


def _nothing() -> None:
    """Continue to wait."""


def send_frame(
    connection: socket.socket, header: Mapping[str, Any], blobs: Sequence[bytes] = ()
) -> None:
    """Send a frame.

    Raises:
        OSError: the connection broke.
    """
    text = json.dumps(header).encode()
    connection.settimeout(None)
    connection.sendall(_LENGTHS.pack(len(text), len(blobs)) + text)
    for blob in blobs:
        connection.sendall(_LENGTH.pack(len(blob)))
        connection.sendall(blob)


def receive_frame(
    connection: socket.socket, waiting: Callable[[], None] = _nothing
) -> Frame | None:
    """Receive a frame; None: the other side has closed the connection.

    Args:
        connection: to the other side.
        waiting: is called twice a second while nothing arrives; it raises to stop waiting.

    Raises:
        OSError: the connection broke.
    """
    try:
        length, count = _LENGTHS.unpack(_exactly(connection, _LENGTHS.size, waiting))
        header = json.loads(_exactly(connection, length, waiting))
        blobs = []
        for _ in range(count):
            (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, waiting))
            blobs.append(_exactly(connection, size, waiting))
    except EOFError:
        return None
    return Frame(header, blobs)


def _exactly(connection: socket.socket, length: int, waiting: Callable[[], None]) -> bytes:
    data = bytearray()
    connection.settimeout(_WAKE_INTERVAL)
    while len(data) < length:
        try:
            part = connection.recv(min(length - len(data), 1 << 20))
        except TimeoutError:
            waiting()
            continue
        if not part:
            raise EOFError
        data += part
    return bytes(data)


class LostError(Exception):
    """The relay or the SuperLink is lost; the message says why."""


class NodeMessage(NamedTuple):
    """Bytes for a node."""

    node: int
    blob: bytes
    seconds: float
    """Time to live of the message and its answer."""


class NodeAnswer(NamedTuple):
    """The answer to a message."""

    id: str
    node: int | None
    """Node that sent it; None: unknown."""
    client: int | None
    """Number that the sender claims."""
    content: bytes | str
    """Bytes, or the reason why there are none, in a sentence."""
    lost: bool = False
    """True if the message or its answer was lost on the way."""


class Transport(Protocol):
    """A transport of messages to nodes and back."""

    def nodes(self) -> dict[int, bytes]:
        """Return the connected nodes, and the public key of each (PEM)."""

    def push(self, messages: Sequence[NodeMessage]) -> list[str]:
        """Send messages; return the id of each, empty for one that cannot be sent."""

    def pull(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        """Return the answers that have arrived; each is returned once.

        Args:
            ids: the bytes that the answer to each message may have; a larger one is an error.
        """

    def close(self) -> None:
        """Close the transport."""


class RelayClient:
    """A transport by way of the relay. All methods may raise `LostError`."""

    def __init__(self, connection: socket.socket, problem: Callable[[], str | None]) -> None:
        """Args:
        connection: from the relay.
        problem: returns the problem of the SuperLink, which the relay may notice minutes later.
        """
        self._connection = connection
        self._problem = problem

    def nodes(self) -> dict[int, bytes]:
        """Return the connected nodes, and the public key of each (PEM)."""
        return {node: key.encode() for node, key in self._ask({"do": "nodes"}).header["nodes"]}

    def push(self, messages: Sequence[NodeMessage]) -> list[str]:
        """Send messages; return the id of each, empty for one that cannot be sent."""
        asked = {"do": "push", "to": [(message.node, message.seconds) for message in messages]}
        return self._ask(asked, [message.blob for message in messages]).header["ids"]

    def pull(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        """Return the answers that have arrived, if they are small enough."""
        header, blobs = self._ask({"do": "pull", "ids": dict(ids)})
        rest = iter(blobs)
        return [
            NodeAnswer(i, node, client, next(rest) if reason is None else reason, lost)
            for i, node, client, reason, lost in header["answers"]
        ]

    def close(self) -> None:
        """Close the connection, which ends the relay."""
        self._connection.close()

    def _ask(self, header: Mapping[str, object], blobs: Sequence[bytes] = ()) -> Frame:
        end = time.monotonic() + ANSWER_TIMEOUT

        def waiting() -> None:
            if (reason := self._problem()) is not None:
                raise LostError(reason)
            if time.monotonic() > end:
                raise LostError(f"the relay gave no answer within {ANSWER_TIMEOUT:g} s")

        try:
            send_frame(self._connection, header, blobs)
            answer = receive_frame(self._connection, waiting)
        except OSError as error:
            raise LostError(f"the relay cannot be reached: {error}") from error
        if answer is None:
            raise LostError("the relay has ended")
        if (reason := answer.header.get("lost")) is not None:
            raise LostError(f"the relay lost the SuperLink ({reason})")
        return answer
