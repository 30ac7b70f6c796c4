"""The environment of every process of Flower's, on the server's side and on a client's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

POLLING = 0.05
"""Seconds between two looks for work of the process that starts apps."""


def surroundings(home: Path) -> dict[str, str]:
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
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(POLLING),
        "PYTHONUNBUFFERED": "1",
        # What lies in the current folder is not ours to import.
        "PYTHONSAFEPATH": "1",
    }
