"""The start of Flower's processes, on the server and on clients: folder, environment, log."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from fedkl.core.errors import MissingPackageError
from fedkl.io import files

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
POLL_INTERVAL = 0.05
"""Seconds between two polls for work of the process that starts apps."""

LOWEST, HIGHEST = (1, 41), (1, 42)
"""The first and the last minor version of Flower that the tests were run with."""
_VERSION = re.compile(r"(\d+)\.(\d+)")


def require_flower() -> None:
    """Require a version of Flower whose internals are those that we rely on; nothing of it is
    imported before.

    Raises:
        MissingPackageError: it is another one, or there is none.
    """
    try:
        installed = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise MissingPackageError("a network needs Flower", "flower") from None
    found = _VERSION.match(installed)
    if found is None or not LOWEST <= (int(found[1]), int(found[2])) <= HIGHEST:
        (major, low), (_, high) = LOWEST, HIGHEST
        raise MissingPackageError(
            f"Flower {installed} is installed, and a network needs {major}.{low} to "
            f"{major}.{high}: fedkl relies on their internals, and is tested with them",
            "flower",
        )


class Scratch:
    """A new temporary folder for all that Flower reads and runs, closed to other users.

    A run's directory may hold foreign files, and Flower runs an app that it finds in its home.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = -1

    @property
    def path(self) -> Path:
        """The folder, made at first use."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="fedkl-")
            (Path(self._folder.name) / "home").mkdir(0o700)
            # Programs that clean temporary folders leave alone one that is locked.
            self._lock = os.open(self._folder.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        return Path(self._folder.name)

    @property
    def home(self) -> Path:
        """Flower's home: its apps, its settings."""
        return self.path / "home"

    def remove(self) -> None:
        """Remove the folder; the next use makes another."""
        if self._folder is not None:
            os.close(self._lock)
            self._folder.cleanup()
            self._folder = None


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment variables of a process of Flower's.

    Args:
        home: folder for Flower's apps and settings.
    """
    # Flower starts its own commands by their bare names.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        # The user's own settings of Flower do not apply.
        **{name: value for name, value in os.environ.items() if not name.startswith("FLWR_")},
        "PATH": path,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(POLL_INTERVAL),
        "PYTHONUNBUFFERED": "1",
        # Modules in the current folder are not to be imported.
        "PYTHONSAFEPATH": "1",
    }


def start(
    command: Sequence[str], log: Path, folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process as the leader of a group, which Ctrl-C does not reach and which ends as one.

    Args:
        command: with its arguments.
        log: file to which its output is appended, closed to other users.
        folder: its working directory.
        environment: its variables.

    Raises:
        UserError: the log cannot be written.
    """
    with files.explain_os_errors("write", log):
        output = files.open_to_write(log, append=True, mode=0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    finally:
        os.close(output)


def log_lines(text: str) -> list[str]:
    """Return the lines of a log of Flower's, without colours, white space and empty lines."""
    return [line for x in _COLOUR.sub("", text).splitlines() if (line := x.strip())]
