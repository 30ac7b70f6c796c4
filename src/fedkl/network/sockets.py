"""Messages between processes of one user, over Unix sockets: each with its length before it, all
with a deadline.

Whoever only hands bytes on starts anew for every message, so nothing of JAX is imported here.
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
"""The numbers of a process, its user and its group, as Linux says them."""
_LONGEST_PATH = 100
"""What every system allows as the name of a socket."""


class NoAnswerError(Exception):
    """Why a process did not answer, in one sentence."""


class GoneError(NoAnswerError):
    """Nobody was there, or died before the answer."""


def ask(path: Path, data: bytes, seconds: float, limit: int = MAX_MESSAGE_BYTES) -> bytes:
    """What the process that listens on a socket answers.

    Args:
        path: of the socket.
        data: what is sent.
        seconds: how long to wait for all of it.
        limit: bytes that an answer may have.

    Raises:
        GoneError: nobody listens, or it died meanwhile.
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
        raise GoneError(f"the client's process cannot be reached: {error}") from error


def listen(path: Path) -> socket.socket:
    """A socket that only this user can connect to; one that was left behind is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _short_name(path) as name:
        # Nobody can connect before `listen`, so nobody was quicker than the permissions.
        listener.bind(name)
        path.chmod(0o600)
        listener.listen(16)
    return listener


def is_listening(path: Path) -> bool:
    """Whether somebody listens on a socket."""
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
    """Sees to it that who is at the other end is a process of this user; where the system cannot
    say (Linux can), the folder of the socket has to keep others out.

    Raises:
        PermissionError: it is somebody else's.
    """
    if hasattr(socket, "SO_PEERCRED"):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        _, user, _ = _PEER.unpack(found)
        if user != os.getuid():
            raise PermissionError(f"a process of another user (number {user}) is at the other end")


def send(connection: socket.socket, data: bytes, deadline: float) -> None:
    """Sends a message with its length before it.

    Raises:
        OSError: the connection broke, or the deadline (`time.monotonic`) has passed.
    """
    connection.settimeout(_left(deadline))
    connection.sendall(_LENGTH.pack(len(data)))
    if data:  # who has heard that there is nothing more may have hung up
        connection.settimeout(_left(deadline))
        connection.sendall(data)


def receive(connection: socket.socket, limit: int, deadline: float) -> bytes:
    """A message that `send` sent.

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
    """A name of a socket that the system can take, however long its path is."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    if sys.platform != "linux":
        raise UserError(f"the path {path} is too long for a socket: give a shorter directory")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
