"""A client's resident process as its callers see it: start it, send it a message, stop it.

The process that forwards a message is a new one every time, so nothing of JAX is imported here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.network.sockets import NoAnswerError, ProcessGoneError, ask, is_listening

START_TIMEOUT = 30.0
"""Seconds until a new process must listen."""
SOCKET, LOG = "worker.sock", "worker.log"
REFUSED = "refused"
"""File with the sentence why the client cannot take part; absent if it can."""
OVER = "over"
"""File that exists once the server has said that its run is over."""
ATTEMPTS = 3
"""Deliveries of a message, each to a new process if the last one died."""
_START_LOCK, _ALIVE_LOCK, _COMPILING_LOCK = "starting.lock", "worker.lock", "compiling.lock"


class ClientPlace(NamedTuple):
    """A client on this machine: its folder, its number, and the files of its own."""

    directory: Path
    """Folder of all clients on the machine, closed to other users."""
    client: int
    world: Path | None = None
    """TOML file with the client's own `[world]`."""
    plugins: tuple[Path, ...] = ()
    watch: int = 0
    """PID of a process that the client's process ends with; 0: none."""

    @property
    def folder(self) -> Path:
        return self.directory / str(self.client)

    @property
    def socket(self) -> Path:
        """Socket on which its process listens."""
        return self.folder / SOCKET


def deliver(place: ClientPlace, data: bytes, seconds: float) -> bytes:
    """Send a message to a client's process and return its answer; start the process if needed.

    If it dies before it answers, a new one is asked: the same request gives the same answer.

    Args:
        place: of the client.
        data: the message.
        seconds: how long to wait for all of it.

    Raises:
        UserError: the client's folder cannot be used.
        NoAnswerError: it died again and again, did not come up, or took too long.
    """
    deadline = time.monotonic() + seconds
    for _ in range(ATTEMPTS):
        with contextlib.suppress(ProcessGoneError):
            path = ensure_running(place, max(0.0, min(START_TIMEOUT, deadline - time.monotonic())))
            return ask(path, data, max(0.0, deadline - time.monotonic()))
        # One that is being killed may listen for a moment longer.
        time.sleep(0.1)
    raise NoAnswerError(f"the client's process died {ATTEMPTS} times before it answered")


def ensure_running(place: ClientPlace, seconds: float = START_TIMEOUT) -> Path:
    """Start a client's process unless it runs, and return its socket.

    Several callers at once start one process.

    Args:
        place: of the client.
        seconds: until the process must listen.

    Raises:
        UserError: the folder cannot be used.
        NoAnswerError: the process did not come up.
    """
    private_folder(place.folder)
    lock = os.open(place.folder / _START_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    with locked(lock):
        if not is_listening(place.socket):
            _start(place, seconds)
    return place.socket


def stop(place: ClientPlace, seconds: float = 5.0) -> None:
    """Stop a client's process if it runs, also one that hangs.

    Args:
        place: of the client.
        seconds: before it is killed.
    """
    deadline = time.monotonic() + seconds
    by = signal.SIGTERM
    while (process := running_pid(place.folder)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, by)
        time.sleep(0.02)
        if time.monotonic() > deadline:
            by = signal.SIGKILL


def running_pid(folder: Path) -> int | None:
    """Return the PID of the process that serves a client's folder, or None."""
    try:
        with (folder / _ALIVE_LOCK).open("r+") as file:
            try:
                # Shared, so that two callers do not take each other for the process.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0) or None
            # The PID of a process that is gone must not be taken for its successor's.
            file.truncate(0)
    except FileNotFoundError:
        pass
    return None


def claim(folder: Path) -> int | None:
    """Make this process the one that serves a client's folder, until it ends.

    Returns:
        An open file, never to be closed; None if there is another such process.
    """
    descriptor = os.open(folder / _ALIVE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # `running_pid` of another process holds the lock for a moment.
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


@contextlib.contextmanager
def compiling(folder: Path, cache: Path) -> Iterator[None]:
    """Say inside the block that a client's process compiles; one at a time of those on a machine.

    Clients of one machine compile the same code, so that the second finds what the first has made.

    Args:
        folder: of the client.
        cache: where compiled code is kept.
    """
    with locked(os.open(folder / _COMPILING_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)):
        cache.mkdir(parents=True, exist_ok=True)
        with locked(os.open(cache / _COMPILING_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)):
            yield


def is_compiling(folder: Path) -> bool:
    """Return whether a client's process compiles; what a dead one held is not held any more."""
    try:
        with (folder / _COMPILING_LOCK).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def private_folder(path: Path) -> None:
    """Make a folder that is closed to other users.

    Raises:
        UserError: it cannot be made, or others may look into it.
    """
    try:
        for folder in (path.parent, path):
            folder.mkdir(0o700, parents=True, exist_ok=True)
        found = path.stat()
    except FileExistsError as error:
        raise UserError(f"cannot use {path}: a file of that name is in the way") from error
    except OSError as error:
        raise UserError(f"cannot use {path}: {error.strerror}") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UserError(f"{path} must belong to this user, and be closed to all others (0700)")


def _start(place: ClientPlace, seconds: float) -> None:
    """Start the process, and wait until it listens."""
    stop(place)  # one that runs and cannot be reached
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
            # The same folder, whether the user's command or Flower starts it.
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


def _wait(place: ClientPlace, ready: int, seconds: float) -> None:
    """Wait until the process says that it listens; its end of the pipe closes if it dies."""
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
    end = files.read_end(place.folder / LOG, files.END_OF_LOG)
    lines = end.decode(errors="replace").splitlines()
    reason = lines[-1] if lines else "it said nothing"
    raise NoAnswerError(f"the client's process did not come up: {reason}")


@contextlib.contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold an exclusive lock on an open file or folder inside the block, and close it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
