"""Processes that tests start."""

import contextlib
import os
import signal
import subprocess
import sys

# Whoever was started in the background, or by nohup, hands on signals that are ignored; tests send
# them and rely on what they do. A child must not go on for hours if the tests are killed. What
# follows takes the place of this process, and inherits both.
_WITH_DEFAULTS = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def python(*arguments):
    """The command for Python with some arguments, in a process that hears signals as usual."""
    return [sys.executable, "-c", _WITH_DEFAULTS, sys.executable, *map(str, arguments)]


@contextlib.contextmanager
def children():
    """Yields what starts a child that hears signals as usual; none outlives the block."""
    started = []

    def start(*arguments, **options):
        """Runs Python with some arguments, as the leader of a group; its output comes by pipes."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(python(*arguments), start_new_session=True, **pipes | options)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            # Also what the child has left behind in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
