"""Processes that belong together: their cores, how they end, and that none outlives its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator

from fedkl.core.errors import UserError

_share: int | None = None
"""The number of cores that this process takes at the most."""


def cores() -> list[int]:
    """The cores that this process may use; where a system cannot say, as many as it has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))[:_share]
    return list(range(os.cpu_count() or 1))[:_share]


FEWEST_THREADS = 2
"""Of XLA's: a single one adds up large sums in another order than several do, however many."""


def take_cores(number: int) -> None:
    """Take so many of this process's cores from now on, whichever they are.

    For processes that share a machine by number, as workers of a cluster do: several that are
    pinned without knowing of each other would crowd on the same ones. XLA, which would count all,
    gets as many threads, but two at least, unless `PJRT_NPROC` says otherwise or something was
    computed already.
    """
    global _share
    if number < len(cores()):
        os.environ.setdefault("PJRT_NPROC", str(max(number, FEWEST_THREADS)))
    _share = number
    if number == 1 and hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        # Else every thread of XLA's that wakes up interrupts the one that computes.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


_START = 2200 * 2**20
_EACH_THREAD = 16 * 2**20
"""Bytes of addresses that JAX takes to start and to compile the preset `demo`, and a tenth more
(VmPeak with jaxlib 0.10, 1 to 64 threads, nothing in the cache). Less than half is memory."""


def require_address_space() -> None:
    """Require that JAX may take the addresses that it needs, where the system limits them.

    Under a smaller limit XLA aborts the process without a word. To be called before it starts.

    Raises:
        UserError: the limit is too small.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    stated = os.environ.get("PJRT_NPROC", "")
    threads = int(stated) if stated.isdecimal() else len(cores())
    needed = _START + _EACH_THREAD * threads
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise UserError(
            f"this process may take {limit >> 20:,} MiB of addresses (`ulimit -v`), and JAX takes "
            f"{needed >> 20:,} MiB with {threads} threads: raise the limit, or limit memory instead"
        )


_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C inside the block, so that all that was started is ended.

    Handlers belong to the main thread; in others nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold SIGTERM and Ctrl-C inside the block back, and treat them like Ctrl-C at its end.

    For code in which an exception out of nowhere may be lost, as in a hook that runs at a fork.
    Handlers belong to the main thread; in others nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    before = {number: x for number, x in handlers.items() if x not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:  # whatever else went wrong may have come from that
            raise KeyboardInterrupt


def ignore_signals() -> None:
    """Ignore SIGTERM and Ctrl-C from now on: an impatient user must not leave half of what was
    started behind."""
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def die_with(parent: int, by: signal.Signals = signal.SIGTERM) -> None:
    """Let the kernel end this process when its parent dies, even by SIGKILL; on Linux.

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
