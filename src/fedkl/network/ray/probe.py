"""A probe whether a Ray cluster admits a caller: `python -m fedkl.network.ray.probe HOST:PORT`.

It runs in a process of its own, because Ray reads its authentication once, when it is imported, and
prints errors to stderr. Other modules call `ask`.
"""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

TIMEOUT = 4
"""Seconds for a cluster to answer."""


class Access(enum.Enum):
    """The result of a probe; the value is the exit code of its process."""

    ADMITTED = 0
    REFUSED = 3
    SILENT = -signal.SIGALRM
    """The process that listens there does not speak Ray."""


def ask(address: str, identity: Mapping[str, str]) -> Access:
    """Ask a cluster whether it admits a caller.

    Args:
        address: HOST:PORT of its head.
        identity: Ray's variables of the caller; those of this process do not count.
    """
    command = [sys.executable, "-P", "-m", "fedkl.network.ray.probe", address]
    others = {name: x for name, x in os.environ.items() if not name.startswith("RAY_AUTH_")}
    done = subprocess.run(command, env={**others, **identity}, capture_output=True)
    if done.returncode not in [answer.value for answer in Access]:
        raise RuntimeError(f"asking Ray failed:\n{done.stderr.decode(errors='replace')}")
    return Access(done.returncode)


def _ask(address: str) -> Access:
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
    from ray.exceptions import AuthenticationError

    # Ray would try for ever. The signal ends the process, wherever it is.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TIMEOUT)
    try:
        GcsClient(address=address).check_alive([], timeout=TIMEOUT)
    except AuthenticationError:
        return Access.REFUSED
    return Access.ADMITTED


if __name__ == "__main__":
    sys.exit(_ask(sys.argv[1]).value)
