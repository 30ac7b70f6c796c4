"""Ctrl-C, while what a command needs is imported and while it runs.

Nothing is imported at the top that takes time, because that is a time to press it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

_STOPPING = "stopping; Ctrl-C again ends it at once"
_PATIENCE = 1.0
"""Seconds after Ctrl-C in which a command that ends says nothing more."""
_MOMENT = 0.05
"""Seconds after which an exception that Python threw away is raised again."""


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C inside the block end the process with a sentence.

    For imports: an exception out of nowhere is lost in the callbacks that JAX has in the garbage
    collector, and spoils the modules of C extensions. Nothing is on disk yet, nothing is printed.
    """
    if not _may_handle():
        yield
        return

    def end(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.write(2, b"fedkl: interrupted\n")
        os._exit(130)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import what a command needs inside the block, with which each command begins.

    Ctrl-C ends the process at once inside of it, and as `install_sigint_handler` says after it.
    """
    with ending_at_once():
        yield
    install_sigint_handler()


def install_sigint_handler() -> None:
    """Let Ctrl-C end the command as an exception does, and the next one at once.

    The first takes a moment, or as long as compiled code computes, and then says so; the next one
    prints no traceback of what was being ended. What is on disk is whole at any time.
    """
    if not _may_handle():
        return
    from fedkl.cli import console

    def at_once(*_: object) -> None:
        with contextlib.suppress(OSError):
            console.err.show_cursor(True)
        os._exit(130)

    ending = threading.Event()

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, at_once)
        if not ending.is_set():
            ending.set()
            waiting = threading.Timer(_PATIENCE, console.say, [_STOPPING])
            waiting.daemon = True
            waiting.start()
        raise KeyboardInterrupt

    before = sys.unraisablehook

    def again(lost: sys.UnraisableHookArgs) -> None:
        """Raise again, a moment later, what Python throws away in some places: JAX has one in
        every collection of garbage."""
        if lost.exc_type is not KeyboardInterrupt:
            return before(lost)
        signal.signal(signal.SIGINT, first)
        # By a signal, which interrupts also what waits by then; and by a thread, because a timer of
        # the kernel's goes on when Python ends, and then ends it by its signal.
        later = threading.Timer(_MOMENT, signal.pthread_kill, [main.ident, signal.SIGINT])
        later.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread is started where Python ends
            later.start()

    main = threading.main_thread()
    signal.signal(signal.SIGINT, first)
    sys.unraisablehook = again
    # What is still to be ended then prints no traceback.
    atexit.register(signal.signal, signal.SIGINT, at_once)


def _may_handle() -> bool:
    """True in the main thread, if Ctrl-C is neither ignored, as in the background, nor handled by
    another program's handler."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
