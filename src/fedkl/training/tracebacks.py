"""The file with the traceback of an error in a user's own code, next to the run that it ended."""

from __future__ import annotations

import time
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.core.text import utc
from fedkl.io import files
from fedkl.io.user_folders import cache_folder

FILE = "traceback.txt"
"""In a run's directory; of a run of which nothing is left, RUN.traceback.txt beside it."""


def write(trace: str, run: Path | None) -> Path:
    """Write a traceback where it can be found, and return the path.

    Args:
        trace: its text.
        run: the run that it is of; None: there is none, and it goes to the user's cache folder.

    Raises:
        UserError: nothing can be written there.
    """
    text = f"{utc(time.time())}\n{trace}".encode(errors="replace")
    if run is not None:
        path = run / FILE if run.is_dir() else run.with_name(f"{run.name}.{FILE}")
        try:
            with files.explain_os_errors("write", path):
                files.make_directory(path.parent)
            files.write_atomically(path, text)
            return path
        except UserError:
            pass  # a run of somebody else's, say: it may be looked at and not written
    path = cache_folder() / FILE
    files.write_atomically(path, text, 0o600)
    return path
