"""Files that are whole at every moment, and a sentence for what goes wrong."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from fedkl.core.errors import UserError

END_OF_LOG = 2**16
"""Bytes in which the last lines of a log are looked for."""
_TEMPORARY = ".fedkl-tmp"

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EISDIR: "it is a directory",
    errno.EEXIST: "a file of that name is in the way",
    errno.EFBIG: "the file would be larger than the system allows",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EIO: "the disk failed to read or write",
    errno.ELOOP: "it is a symbolic link, and may lead anywhere",
}


@contextlib.contextmanager
def explain_os_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `UserError` that names the path and the reason.

    Args:
        doing: a verb for the message ("write", "read").
        path: what the user knows the file by, not a temporary name.
    """
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
        if doing == "create" and error.errno == errno.ENOENT:
            reason = "nothing can be made in that place"
        raise UserError(f"cannot {doing} {path}: {reason}") from error


def require_writable(path: Path) -> None:
    """Check, before anything costs time, that a file can be written to a path.

    Raises:
        UserError: its folder is missing or closed to us, or the path is a folder.
    """
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a directory")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: permission is denied")


def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace a file by new contents, durably and all at once.

    When it returns, the contents survive a power failure. When it raises, the file is whole: the
    old one, or the new one if only the last sync failed.

    Args:
        path: the file; its folder must exist.
        data: the new contents.
        mode: the file's permissions, less the umask.

    Raises:
        UserError: the operating system refused; the message says why.
    """
    # The same folder, because a rename is atomic only within one file system.
    unique = f"{os.getpid()}.{secrets.token_hex(4)}"
    temporary = path.with_name(f".{path.name}.{unique}{_TEMPORARY}")
    with explain_os_errors("write", path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            try:
                write_all(descriptor, data)
                # Before the rename: otherwise a power failure may leave the name on empty contents.
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        sync_directory(path.parent)


def require_ordinary(path: Path) -> None:
    """Require that a path is an ordinary file; reading a pipe would wait for ever.

    Raises:
        FileNotFoundError: nothing is there.
        OSError: it is a directory, or may not be looked at.
        UserError: it is something else.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is not an ordinary file")


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Read an ordinary file.

    Args:
        path: the file.
        most: how many bytes are sensible; None: any number.

    Raises:
        OSError: it cannot be read.
        UserError: it is no ordinary file, or larger than is sensible.
    """
    require_ordinary(path)
    if most is not None and os.stat(path).st_size > most:
        raise UserError(f"{path} is larger than {most:,} bytes, which is not sensible")
    return path.read_bytes()


def read_if_there(path: Path, most: int | None = None) -> bytes | None:
    """Read an ordinary file, or return None if there is none.

    Raises:
        UserError: it cannot be read, is no ordinary file, or larger than is sensible.
    """
    with explain_os_errors("read", path):
        try:
            return read_bytes(path, most)
        except FileNotFoundError:
            return None


def read_start(path: Path, most: int) -> bytes:
    """Read an ordinary file's first bytes.

    Args:
        path: the file.
        most: how many bytes at the most.

    Raises:
        OSError: it cannot be read.
        UserError: it is no ordinary file.
    """
    require_ordinary(path)
    with path.open("rb") as stream:
        return stream.read(most)


def read_end(path: Path, most: int) -> bytes:
    """Read an ordinary file's last bytes, such as the last lines of a log; otherwise as
    `read_start`."""
    require_ordinary(path)
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
        return stream.read(most)


def open_to_write(path: Path, append: bool = False, mode: int = 0o666) -> int:
    """Open a file to change in place, made if it is not there; links are not followed.

    Args:
        path: the file.
        append: whether all that is written goes to its end, as in a log.
        mode: the permissions of a new file, less the umask.

    Raises:
        OSError: it cannot be written.
        UserError: it is a pipe or the like.
    """
    # A pipe that no process reads must not make us wait.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags | (os.O_APPEND if append else 0), mode)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path} is not an ordinary file")
    return descriptor


def refuse_link(path: Path) -> None:
    """Refuse a folder that is a link, which leads elsewhere.

    Raises:
        UserError: it is a link.
    """
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link; only what is inside a run is written to")


def refuse_links(folder: Path) -> None:
    """Refuse a folder that is a link, or has a link or a pipe in it: others are to write there.

    Raises:
        UserError: something is.
    """
    refuse_link(folder)
    for within, folders, names in os.walk(folder):
        for name in (*folders, *names):
            refuse_link(Path(within) / name)
            # A socket that was left behind is replaced by the process that listens there.
            if not stat.S_ISSOCK(os.lstat(Path(within) / name).st_mode) and name in names:
                require_ordinary(Path(within) / name)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; `os.write` alone may stop early, for example on a nearly full disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable, where the file system can do so."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # A folder that we may write but not list cannot be opened for syncing.
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems refuse to sync a folder; a rename there is as good as it gets.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, durably; one that exists is left alone.

    Args:
        path: the folder.
        mode: the permissions of what is made, less the umask.
    """
    if path.is_dir():
        return
    if not path.parent.exists():
        make_directory(path.parent, mode)
    path.mkdir(mode, exist_ok=True)
    sync_directory(path.parent)


def is_temporary(name: str) -> bool:
    """True for a name that only an interrupted `write_atomically` leaves behind."""
    return name.startswith(".") and name.endswith(_TEMPORARY)


def remove_temporaries(directory: Path) -> None:
    """Remove what interrupted writes left; only for the one process that writes there."""
    for entry in directory.iterdir():
        if is_temporary(entry.name) and (entry.is_symlink() or not entry.is_dir()):
            entry.unlink(missing_ok=True)
