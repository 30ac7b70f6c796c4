"""Handing a message to a client's resident process, and starting that if it is not there.

Whoever only hands bytes on starts anew for every message, so nothing of JAX is imported here.
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
from fedkl.network.sockets import GoneError, NoAnswerError, ask, is_listening

START_TIMEOUT = 30.0
"""Seconds that a process may take until it listens."""
SOCKET, LOG = "worker.sock", "worker.log"
REFUSED = "refused"
"""A file with the sentence why the client cannot take part; there is none if it can."""
OVER = "over"
"""A file that is there once the server has said that its run is over."""
ATTEMPTS = 3
"""How often a message is handed over to a process that then dies."""
_START_LOCK, _ALIVE_LOCK = "starting.lock", "worker.lock"


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
            path = ensure_running(place, max(0.0, min(START_TIMEOUT, deadline - time.monotonic())))
            return ask(path, data, max(0.0, deadline - time.monotonic()))
        # One that is being killed may listen for a moment longer.
        time.sleep(0.1)
    raise NoAnswerError(f"the client's process died {ATTEMPTS} times before it answered")


def ensure_running(place: Place, seconds: float = START_TIMEOUT) -> Path:
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
    with _locked(place.folder / _START_LOCK):
        if not is_listening(place.socket):
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
    while (process := running_pid(place.folder)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, by)
        time.sleep(0.02)
        if time.monotonic() > deadline:
            by = signal.SIGKILL


def running_pid(folder: Path) -> int | None:
    """The number of the process that serves a client's folder, if there is one."""
    try:
        with (folder / _ALIVE_LOCK).open("r+") as file:
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
    descriptor = os.open(folder / _ALIVE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
