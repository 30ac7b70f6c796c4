"""What server and relay say to each other over a Unix socket: a JSON header, and some bytes."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_LENGTHS = struct.Struct(">II")
_LENGTH = struct.Struct(">Q")
_WAKING = 0.5
"""Seconds. Flower tells a process that its parent is gone by a signal that is raised in a thread,
and Python looks at it only when the main thread is out of its system call."""


class Frame(NamedTuple):
    """One thing that is said."""

    header: dict[str, Any]
    blobs: list[bytes]


def _nothing() -> None:
    """All is well."""


def send(connection: socket.socket, header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> None:
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


def receive(connection: socket.socket, waiting: Callable[[], None] = _nothing) -> Frame | None:
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
    connection.settimeout(_WAKING)
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
