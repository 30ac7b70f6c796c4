"""Folders of a user's own: for what can be made again, and for what is to be remembered.

A user of a container or of a service may have no home, or one that cannot be written. A temporary
folder stands in for it then, and a warning says so once in a process.
"""

from __future__ import annotations

import functools
import os
import stat
import tempfile
from pathlib import Path

from fedkl.core.text import print_warning
from fedkl.io import files

_CACHE, _STATE = "cache", "state"
_said: set[str] = set()


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/fedkl`, usually `~/.cache/fedkl`, or what stands in for it."""
    return usable_cache(_wanted("XDG_CACHE_HOME", ".cache"))


def usable_cache(wanted: Path | None) -> Path:
    """Return a folder for what can be made again, or what stands in for it if nothing can be
    written there.

    Args:
        wanted: is made if it is not there; None: none is known.
    """
    return _usable(wanted, _CACHE, 0o777)


def state_folder() -> Path:
    """Return `$XDG_STATE_HOME/fedkl`, usually `~/.local/state/fedkl`, or what stands in for it; to
    write to, while all of `state_folders` are to be read."""
    return _usable(_wanted("XDG_STATE_HOME", ".local/state"), _STATE, 0o700)


def state_folders() -> list[Path]:
    """Return the folders that `state_folder` may have returned to this user; nothing is made."""
    found = (_wanted("XDG_STATE_HOME", ".local/state"), _stand_in(_STATE))
    return [folder for folder in found if folder is not None]


def _wanted(variable: str, usual: str) -> Path | None:
    try:
        return Path(os.environ.get(variable) or Path.home() / usual) / "fedkl"
    except RuntimeError:
        return None  # the account has no home, and no variable says where


def _usable(wanted: Path | None, kind: str, mode: int) -> Path:
    if wanted is None:
        reason = "there is no home folder"
    elif problem := _problem(wanted, mode):
        reason = f"cannot write to {wanted} ({problem})"
    else:
        return wanted
    folder = _stand_in(kind)
    # Looked at again once it is made: another user may have been there in between.
    if folder is None or _problem(folder, 0o700) or _stand_in(kind) is None:
        folder = Path(_of_this_process().name)
    if not _said:
        print_warning(f"{reason}; what is kept between commands goes to {folder}")
        _said.add(reason)
    return folder


def _stand_in(kind: str) -> Path | None:
    """Return the folder for all processes of this user; None if another user may have put something
    there, as anybody may in a folder for all."""
    root = Path(tempfile.gettempdir()) / f"fedkl-{os.getuid()}"
    try:
        found = os.lstat(root)
    except FileNotFoundError:
        return root / kind
    private = found.st_uid == os.getuid() and not found.st_mode & 0o077
    return root / kind if private and stat.S_ISDIR(found.st_mode) else None


def _problem(folder: Path, mode: int) -> str | None:
    """Make a folder, and return why nothing can be written there; None if it can."""
    try:
        files.make_directory(folder, mode)
        # Not what permissions say: a file system may be read-only, and a share has its own rules.
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


@functools.cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fedkl-")
