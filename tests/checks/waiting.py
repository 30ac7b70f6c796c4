"""Waiting for what other processes and threads do, on a machine that may be busy."""

import time
from pathlib import Path

PATIENCE = 120.0
"""Seconds. Who waits for a condition goes on as soon as it holds, so this costs only who fails."""


def until(condition, seconds=PATIENCE):
    """Wait until a condition holds, and return what it gave; fail if it never does."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)
    return found


def runs(process):
    """If a process is there, and is not only waited for by its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
