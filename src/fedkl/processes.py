"""Processes that belong together: how many cores they have, and that none outlives its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys


def cores() -> list[int]:
    """The cores that this process may use; where a system cannot say, as many as it has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def die_with(parent: int, by: signal.Signals = signal.SIGTERM) -> None:
    """On Linux, the kernel ends this process when its parent dies, even by SIGKILL.

    A process arranges this itself, because code between fork and exec in a parent full of JAX's
    threads may deadlock. To the kernel the parent is the *thread* that started this process.

    Args:
        parent: the parent's process number, to notice that it has died already.
        by: the signal that ends this process.
    """
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, by)
        if os.getppid() != parent:
            os._exit(1)
