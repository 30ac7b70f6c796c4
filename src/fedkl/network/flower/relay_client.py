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
"""Seconds. Flower tells a process that its parent is gone by a signal that is raised in a thread,
and Python looks at it only when the main thread is out of its system call."""


class Frame(NamedTuple):
    """One thing that is said."""

    header: dict[str, Any]
    blobs: list[bytes]


def _nothing() -> None:
    """All is well."""


def send_frame(
    connection: socket.socket, header: Mapping[str, Any], blobs: Sequence[bytes] = ()
) -> None:
    """Says one thing.

    Raises:
        OSError: nobody hears it.
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
    """What is said next; None: the other side has ended.

    Args:
        connection: to the other side.
        waiting: is called twice a second while there is nothing; it ends the waiting by raising.

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


ANSWER_TIMEOUT = 120.0
"""Seconds that the relay may take to hand over what it is given, or what it has."""


class LostError(Exception):
    """Nothing can be carried any more; the message says why."""


class NodeMessage(NamedTuple):
    """Bytes for a node."""

    node: int
    blob: bytes
    seconds: float
    """After which nobody waits for an answer."""


class NodeAnswer(NamedTuple):
    """What came back for a parcel."""

    id: str
    node: int | None
    """Who sent it, as far as that is known."""
    client: int | None
    """The number that its sender claims."""
    content: bytes | str
    """A sentence: why there is nothing."""
    lost: bool = False
    """Whether it was lost on the way, there or back."""


class Transport(Protocol):
    """Whoever carries."""

    def nodes(self) -> dict[int, bytes]:
        """The nodes that are connected, and the public key of each (PEM)."""

    def push(self, parcels: Sequence[NodeMessage]) -> list[str]:
        """Sends parcels; what each is known by, empty for one that cannot be sent."""

    def pull(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        """The answers that are there by now; each is given once, and its number then forgotten.

        Args:
            ids: the bytes that each may have; one that has more is a sentence that says so.
        """

    def close(self) -> None:
        """Ends it."""


class RelayClient:
    """A carrier that asks the relay. All of it may raise `LostError`."""

    def __init__(self, connection: socket.socket, problem: Callable[[], str | None]) -> None:
        """Args:
        connection: on which the relay has called.
        problem: says what is wrong with the SuperLink; the relay may take minutes to see it.
        """
        self._connection = connection
        self._problem = problem

    def nodes(self) -> dict[int, bytes]:
        """The nodes that are connected, and the public key of each (PEM)."""
        return {node: key.encode() for node, key in self._ask({"do": "nodes"}).header["nodes"]}

    def push(self, parcels: Sequence[NodeMessage]) -> list[str]:
        """Sends parcels; what each is known by, empty for one that cannot be sent."""
        asked = {"do": "push", "to": [(parcel.node, parcel.seconds) for parcel in parcels]}
        return self._ask(asked, [parcel.blob for parcel in parcels]).header["ids"]

    def pull(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        """The answers that are there by now, as far as they are small enough."""
        header, blobs = self._ask({"do": "pull", "ids": dict(ids)})
        rest = iter(blobs)
        return [
            NodeAnswer(i, node, client, next(rest) if reason is None else reason, lost)
            for i, node, client, reason, lost in header["answers"]
        ]

    def close(self) -> None:
        """The relay ends when nobody asks it any more."""
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
