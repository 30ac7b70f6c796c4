"""The lock of a directory: one process may write there, and notes its last checkpoint."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.io import files

LOCK = ".lock"
_MOST = 64
"""Bytes of the file that are read: two numbers, each on its line."""


class Lock:
    """A lock that this process holds.

    The file has the number of the process on its first line, and on the second the round of the
    last checkpoint that was saved under it.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take the lock.

        Args:
            path: the file.
            descriptor: of the same, open to write.

        Raises:
            UserError: another process (or this one, elsewhere) holds it, or may.
        """
        self._path = path
        self._descriptor = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # A holder that has not yet written its number leaves the file empty or stale.
            owner, _ = _read(path)
            holder = "another process" if owner is None else f"process {owner}"
            raise UserError(f"{path.parent} is in use by {holder}") from error
        # Somebody may have removed the file before it was locked, and hold another one by now.
        self.require()
        try:
            self._write(last_saved(path.parent))
        except UserError:
            # A full disk: what was made for the lock goes, and what was written there before stays.
            if not os.fstat(descriptor).st_size:
                path.unlink()
            raise

    def require(self) -> None:
        """Require that the lock is still held, before something is written.

        Raises:
            UserError: the file was removed, so another process may hold a lock on a new one.
        """
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        ours = os.fstat(self._descriptor)
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            raise UserError(
                f"{self._path} was removed while it was held, so another process may write to "
                f"{self._path.parent}; nothing more is written here"
            )

    def note(self, saved: int) -> None:
        """Write down the round of a checkpoint that was saved; it need not survive a failure."""
        self._write(saved)

    def _write(self, saved: int | None) -> None:
        text = (f"{os.getpid()}\n" + ("" if saved is None else f"{saved}\n")).encode("ascii")
        with files.explain_os_errors("write", self._path):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            files.write_all(self._descriptor, text)
            # Afterwards, so that no other process finds it empty meanwhile.
            os.ftruncate(self._descriptor, len(text))


def unlocked() -> None:
    """Require nothing, where no lock is held."""


def last_saved(directory: Path) -> int | None:
    """The round of the last checkpoint that was saved there; None if it is not known.

    A run that has none of that round any more has lost it.
    """
    return _read(directory / LOCK)[1]


def holder(directory: Path) -> int | None:
    """The process that holds a directory; None if none does, or nobody may know."""
    owner, _ = _read(directory / LOCK)
    if owner is None:
        return None
    try:
        os.kill(owner, 0)
    except PermissionError:  # it is another user's
        pass
    except (ProcessLookupError, OverflowError):
        return None
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Only beside a process of that number, so that one that comes now is not turned away.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return owner
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return None  # another process has the number by now


def _read(path: Path) -> tuple[int | None, int | None]:
    try:
        data = files.read_start(path, _MOST)
    except (OSError, UserError):
        return None, None  # nobody has been here yet, or nobody may know
    words = data.decode("ascii", "replace").split()
    numbers = [int(w) if w.isascii() and w.isdigit() else None for w in (*words, "", "")]
    return numbers[0], numbers[1]


@contextlib.contextmanager
def lock_directory(directory: Path) -> Iterator[Lock]:
    """Hold a directory for this process.

    The kernel frees the lock when the process ends, however it ends. The file stays: removing
    it would let two processes hold locks on two files of the same name.

    Raises:
        UserError: another process (or this one, elsewhere) holds it, or it could not be written.
    """
    path = directory / LOCK
    with files.explain_os_errors("lock", path):
        descriptor = files.open_to_write(path)
    try:
        with files.explain_os_errors("lock", path):
            lock = Lock(path, descriptor)
            # Nobody else writes now, so these are of a process that died.
            files.remove_temporaries(directory)
        yield lock
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong before says more
            os.close(descriptor)
        raise
    # A disk may say only now that it could not write what was noted.
    with files.explain_os_errors("write", path):
        os.close(descriptor)
