"""Handing a message to a client's resident process, and starting that if it is not there.

Whoever only hands bytes on starts anew for every message, so nothing of JAX is imported here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedkl.errors import UserError
from fedkl.network import LARGEST

STARTING = 30.0
"""Seconds that a process may take until it listens."""
SOCKET, LOG = "worker.sock", "worker.log"
REFUSED = "refused"
"""A file with the sentence why the client cannot take part; there is none if it can."""
ATTEMPTS = 3
"""How often a message is handed over to a process that then dies."""
_STARTING, _ALIVE = "starting.lock", "worker.lock"
_LENGTH = struct.Struct(">Q")
_LONGEST_PATH = 100
"""What every system allows as the name of a socket."""


class NoAnswerError(Exception):
    """Why a process did not answer, in one sentence."""


class GoneError(NoAnswerError):
    """Nobody was there, or died before the answer."""


class Place(NamedTuple):
    """Where a client lives on its machine."""

    directory: Path
    """Of all clients on the machine; nobody else may look into it."""
    client: int
    world: Path | None = None
    """A TOML file with the client's own `[world]`."""
    plugins: tuple[Path, ...] = ()
    watch: int = 0
    """The number of a process without which the client's ends; 0: none."""

    @property
    def folder(self) -> Path:
        """The client's own."""
        return self.directory / str(self.client)

    @property
    def socket(self) -> Path:
        """Where its process listens."""
        return self.folder / SOCKET


def ask(path: Path, data: bytes, seconds: float, limit: int = LARGEST) -> bytes:
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
        with socket.socket(socket.AF_UNIX) as connection, _short(path) as name:
            connection.settimeout(seconds)
            connection.connect(name)
            send(connection, data, deadline)
            return receive(connection, limit, deadline)
    except TimeoutError as error:
        raise NoAnswerError(
            f"the client's process gave no answer within {round(seconds, 1):g} s"
        ) from error
    except (OSError, EOFError) as error:
        raise GoneError(f"the client's process cannot be reached: {error}") from error


def deliver(place: Place, data: bytes, seconds: float) -> bytes:
    """What a client's process answers; one that is not there is started, and one that dies before
    it answers is asked again: the same request gives the same answer.

    Args:
        place: where the client lives.
        data: what is sent.
        seconds: how long to wait for all of it.

    Raises:
        UserError: the client's folder cannot be used.
        NoAnswerError: it died again and again, did not come up, or took too long.
    """
    deadline = time.monotonic() + seconds
    for _ in range(ATTEMPTS):
        with contextlib.suppress(GoneError):
            path = ensure(place, max(0.0, min(STARTING, deadline - time.monotonic())))
            return ask(path, data, max(0.0, deadline - time.monotonic()))
        # One that is being killed may listen for a moment longer.
        time.sleep(0.1)
    raise NoAnswerError(f"the client's process died {ATTEMPTS} times before it answered")


def ensure(place: Place, seconds: float = STARTING) -> Path:
    """The socket of a client's process, which is started if it is not there.

    Several that ask at once start one.

    Args:
        place: where the client lives.
        seconds: how long the process may take until it listens.

    Raises:
        UserError: the folder cannot be used.
        NoAnswerError: the process did not come up.
    """
    private_folder(place.folder)
    with _locked(place.folder / _STARTING):
        if not _listens(place.socket):
            _start(place, seconds)
    return place.socket


def stop(place: Place, seconds: float = 5.0) -> None:
    """Ends a client's process if it is there, also one that hangs.

    Args:
        place: where the client lives.
        seconds: how long it may take before it is killed.
    """
    deadline = time.monotonic() + seconds
    by = signal.SIGTERM
    while (process := alive(place.folder)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, by)
        time.sleep(0.02)
        if time.monotonic() > deadline:
            by = signal.SIGKILL


def alive(folder: Path) -> int | None:
    """The number of the process that serves a client's folder, if there is one."""
    try:
        with (folder / _ALIVE).open("r+") as file:
            try:
                # Shared, so that two who look do not take each other for the process.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0) or None
            # Nobody shall take the number of one that is gone for that of its successor.
            file.truncate(0)
    except FileNotFoundError:
        pass
    return None


def claim(folder: Path) -> int | None:
    """Makes this process the one that serves a client's folder, until it ends.

    Returns:
        An open file, never to be closed; None if there is another such process.
    """
    descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # Somebody may be looking whether we are alive; that takes no time.
    for _ in range(50):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
            continue
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor
    os.close(descriptor)
    return None


def listen(path: Path) -> socket.socket:
    """A socket that only this user can connect to; one that was left behind is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _short(path) as name:
        # Nobody can connect before `listen`, so nobody was quicker than the permissions.
        listener.bind(name)
        path.chmod(0o600)
        listener.listen(16)
    return listener


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


def private_folder(path: Path) -> None:
    """Makes a folder that only this user may look into.

    Raises:
        UserError: it cannot be made, or others may look into it.
    """
    try:
        for folder in (path.parent, path):
            folder.mkdir(0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise UserError(f"cannot use {path}: {error.strerror}") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UserError(f"{path} must belong to this user, and be closed to all others (0700)")


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


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection, _short(path) as name:
        connection.setblocking(False)
        try:
            connection.connect(name)
        except BlockingIOError:  # it has a queue
            return True
        except OSError:
            return False
        return True


def _start(place: Place, seconds: float) -> None:
    """Starts the process, and waits until it listens."""
    stop(place)  # one that is there and cannot be reached
    ours, theirs = os.pipe()
    log = os.open(place.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # -P: what lies in the current folder is not ours to import.
    command = [sys.executable, "-P", "-m", "fedkl.network.worker"]
    command += [str(place.directory.resolve()), str(place.client), f"--ready={theirs}"]
    command += [f"--world={place.world.resolve()}"] if place.world else []
    command += [f"--plugin={plugin.resolve()}" for plugin in place.plugins]
    command += [f"--watch={place.watch}"] if place.watch else []
    try:
        # It goes on in a process of its own, so this ends at once.
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # The same for every one, whoever starts it: the user's command, or Flower.
            cwd=place.folder,
            pass_fds=[theirs],
            start_new_session=True,
            check=False,
        )
    finally:
        os.close(log)
        os.close(theirs)
    with os.fdopen(ours, "rb") as ready:
        _wait(place, ready.fileno(), seconds)


def _wait(place: Place, ready: int, seconds: float) -> None:
    """Until the process says that it listens; its end of the pipe closes if it dies."""
    os.set_blocking(ready, False)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if os.read(ready, 1):
                return
            break
        except BlockingIOError:
            time.sleep(0.005)
    else:
        raise NoAnswerError(f"the client's process did not come up within {seconds:g} s")
    lines = (place.folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    reason = lines[-1] if lines else "it said nothing"
    raise NoAnswerError(f"the client's process did not come up: {reason}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
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
