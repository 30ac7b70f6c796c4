"""How every process of Flower's is started, on the server's side and on a client's."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedkl.io import files

POLL_INTERVAL = 0.05
"""Seconds between two looks for work of the process that starts apps."""


class Scratch:
    """A folder for all that Flower reads and runs: always a new one, closed to others.

    What lies in a run's directory may be somebody else's, and Flower runs an app that it finds in
    its home.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = -1

    @property
    def path(self) -> Path:
        """The folder; made when it is first asked for."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="fedkl-")
            (Path(self._folder.name) / "home").mkdir(0o700)
            # What tidies up such folders leaves alone one that is locked, however old it is.
            self._lock = os.open(self._folder.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        return Path(self._folder.name)

    @property
    def home(self) -> Path:
        """What Flower takes for its own: its apps, its settings."""
        return self.path / "home"

    def remove(self) -> None:
        """Removes it; the next one is another."""
        if self._folder is not None:
            os.close(self._lock)
            self._folder.cleanup()
            self._folder = None


def flower_environment(home: Path) -> dict[str, str]:
    """The environment of a process of Flower's.

    Args:
        home: a folder for what Flower keeps: its apps, its settings.
    """
    # Flower starts its own commands by their bare names.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        # Settings of a user's own experiments with Flower are not for us.
        **{name: value for name, value in os.environ.items() if not name.startswith("FLWR_")},
        "PATH": path,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(POLL_INTERVAL),
        "PYTHONUNBUFFERED": "1",
        # What lies in the current folder is not ours to import.
        "PYTHONSAFEPATH": "1",
    }


def start(
    command: Sequence[str], log: Path, folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a process as the leader of a group: Ctrl-C is for us, and all of it ends as one.

    Args:
        command: what it runs.
        log: what it says is added to this file; nobody else may read it.
        folder: in which it works.
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
