"""Messages over Unix sockets between processes of one user, each with a length and a deadline.

The process that forwards a message is a new one every time, so nothing of JAX is imported here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.network import MAX_MESSAGE_BYTES

_LENGTH = struct.Struct(">Q")
_PEER = struct.Struct("iII")
"""PID, user and group of a peer, as Linux gives them."""
_MAX_PATH = 100
"""Bytes of a socket's path that every system allows."""


class NoAnswerError(Exception):
    """A process did not answer; the reason in one sentence."""


class ProcessGoneError(NoAnswerError):
    """The process was not there, or died before it answered."""


def ask(path: Path, data: bytes, seconds: float, limit: int = MAX_MESSAGE_BYTES) -> bytes:
    """Send a message to the process that listens on a socket, and return its answer.

    Args:
        path: of the socket.
        data: the message.
        seconds: to wait for the whole answer.
        limit: bytes that an answer may have.

    Raises:
        GoneError: no process listens, or it died meanwhile.
        NoAnswerError: it took too long.
    """
    deadline = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX) as connection, _short_name(path) as name:
            connection.settimeout(seconds)
            connection.connect(name)
            require_same_user(connection)
            send(connection, data, deadline)
            return receive(connection, limit, deadline)
    except TimeoutError as error:
        raise NoAnswerError(
            f"the client's process gave no answer within {round(seconds, 1):g} s"
        ) from error
    except (OSError, EOFError) as error:
        raise ProcessGoneError(f"the client's process cannot be reached: {error}") from error


def listen(path: Path) -> socket.socket:
    """Listen on a socket that only this user can connect to; replace one that was left behind."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _short_name(path) as name:
        # No process can connect before `listen`, so none precedes the permissions.
        listener.bind(name)
        path.chmod(0o600)
        listener.listen(16)
    return listener


def is_listening(path: Path) -> bool:
    """Return True if a process listens on a socket."""
    with socket.socket(socket.AF_UNIX) as connection, _short_name(path) as name:
        connection.setblocking(False)
        try:
            connection.connect(name)
        except BlockingIOError:  # it has a queue
            return True
        except OSError:
            return False
        return True


def require_same_user(connection: socket.socket) -> None:
    """Check that the peer is a process of this user.

    Where the system cannot tell (Linux can), the folder of the socket has to keep others out.

    Raises:
        PermissionError: it is another user's.
    """
    if hasattr(socket, "SO_PEERCRED"):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        _, user, _ = _PEER.unpack(found)
        if user != os.getuid():
            raise PermissionError(f"a process of another user (number {user}) is at the other end")


def send(connection: socket.socket, data: bytes, deadline: float) -> None:
    """Send a message with its length before it.

    Raises:
        OSError: the connection broke, or the deadline (`time.monotonic`) has passed.
    """
    connection.settimeout(_left(deadline))
    connection.sendall(_LENGTH.pack(len(data)))
    if data:  # a peer that has read a length of 0 may have closed the connection
        connection.settimeout(_left(deadline))
        connection.sendall(data)


def receive(connection: socket.socket, limit: int, deadline: float) -> bytes:
    """Receive a message of `send`.

    Raises:
        EOFError: the connection was closed before its end.
        OSError: it broke, the message is over the limit, or the deadline has passed.
    """
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size, deadline))
    if length > limit:
        raise OSError(f"a message of {length} bytes is over the limit of {limit}")
    return bytes(_receive(connection, length, deadline))


def _receive(connection: socket.socket, length: int, deadline: float) -> bytearray:
    data = bytearray()
    while len(data) < length:
        connection.settimeout(_left(deadline))
        part = connection.recv(min(length - len(data), 1 << 20))
        if not part:
            raise EOFError("it closed the connection")
        data += part
    return data


def _left(deadline: float) -> float:
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Yield a name of a socket that is short enough for the system."""
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield str(path)
        return
    if sys.platform != "linux":
        raise UserError(f"the path {path} is too long for a socket: give a shorter directory")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
