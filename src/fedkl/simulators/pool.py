"""Simulators in processes of their own, replaced when they come to harm.

What comes of a job is a pure function of it, so one that was lost is simply run again: a worker
that was killed, hangs, or lost a vehicle changes nothing but the time that it takes.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import IO, Any

from fedkl.core.errors import UserError
from fedkl.core.own_code import OwnCodeError
from fedkl.core.processes import cores
from fedkl.simulators.base import (
    EpisodeLostError,
    ProcessLostError,
    Recipe,
    SimulatorError,
    SimulatorReply,
    SimulatorRequest,
)
from fedkl.simulators.episodes import Columns, EpisodeJob

ATTEMPTS = 10
"""Failures of one job after which it is given up."""
STUBBORN = 5
"""Failures that a simulator reports in one job after which the job gets other seeds."""
STARTING = 60.0
"""Seconds that a process may take to import what it needs and open its simulator."""


class SimulatorProcess:
    """One process with simulators of one kind in it; `open` comes first."""

    def __init__(self) -> None:
        """Start the process."""
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        with theirs:
            arguments = [str(theirs.fileno()), str(os.getpid())]
            self.process = subprocess.Popen(
                # -P: what lies in the current folder is not ours to import.
                [sys.executable, "-P", "-m", "fedkl.simulators.worker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for the process that started us; it would spoil a job here.
                start_new_session=True,
                # Its matrices are too small to share out.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        self._socket = ours
        self._connection: Connection[SimulatorRequest, SimulatorReply] = Connection(
            os.dup(ours.fileno())
        )
        mine = (self.process, self._connection, ours, self._log)
        self._end = weakref.finalize(self, _end, *mine)

    def open(self, recipe: Recipe) -> None:
        """Make the first simulator.

        Raises:
            UserError: the recipe is wrong in a way that the user can mend.
            SimulatorError: it did not come up.
        """
        self.ask("open", tuple(recipe))

    def ask(self, what: str, argument: Any = None, seconds: float = STARTING) -> Any:
        """Send a request, and return the worker's answer.

        Raises:
            UserError: the user can mend it.
            SimulatorError: the simulator failed, the process died, or took too long.
            RuntimeError: the simulator is defective; with its own traceback.
        """
        # A worker may hang in the middle of a message, when the pipe is full or half read.
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, limit)
        try:
            self._connection.send(SimulatorRequest(what, argument))
            if not self._connection.poll(seconds):
                raise BlockingIOError
            reply = self._connection.recv()
        except BlockingIOError as error:
            raise ProcessLostError(f"no answer within {seconds:g} s") from error
        except (EOFError, OSError) as error:
            raise ProcessLostError(self._last_line()) from error
        if reply.mistake is not None and reply.trace is not None:
            raise OwnCodeError(reply.mistake, reply.trace)
        if reply.mistake is not None:
            raise UserError(reply.mistake)
        if reply.harm is not None:
            raise SimulatorError(reply.harm)
        if reply.defect is not None:
            raise RuntimeError(f"in the simulator's process:\n{reply.defect}")
        return reply.result

    def close(self) -> None:
        """End the process at once: it keeps nothing. A forgotten worker does this by itself."""
        self._end()

    def _last_line(self) -> str:
        """Return the last line of the process's log, or its exit code."""
        self.process.kill()
        code = self.process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the simulator's process ended with code {code}"


class Workers:
    """As many workers as there are cores, each looked after by a thread of its own.

    They are started when they are first needed, and ended by `close`, when this object is no
    longer used, or when the process ends, however it ends.
    """

    def __init__(self, recipe: Recipe, timeout: float, number: int | None = None) -> None:
        """Args:
        recipe: how a worker makes its simulator.
        timeout: seconds after which a job counts as lost, for each of its columns.
        number: how many workers at most; one for each core if None.
        """
        self._recipe = recipe
        self._timeout = timeout
        self.number = number or len(cores())
        # A worker lives as long as the thread that started it (see `die_with`).
        self._threads = ThreadPoolExecutor(self.number, "simulator")
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._alive: set[SimulatorProcess] = set()
        self._closed = False
        self.replaced = 0
        """The number of workers that failed so far."""

    def run(self, jobs: Iterable[EpisodeJob]) -> list[Columns]:
        """Run jobs side by side, and return their results in order.

        Raises:
            UserError: the simulator cannot be opened, or an episode was lost again and again.
        """
        over = threading.Event()
        futures = [self._threads.submit(self._run, job, over) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            # Python waits for our threads before it ends, and they must not wait for what hangs.
            over.set()
            for future in futures:
                future.cancel()
            self._kill()
            raise

    def processes(self) -> list[int]:
        """Return the numbers of the processes that run now."""
        with self._lock:
            return [worker.process.pid for worker in self._alive]

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        self._closed = True
        self._kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._alive:
            worker.close()

    def _kill(self) -> None:
        with self._lock:
            for worker in self._alive:
                worker.process.kill()

    def _run(self, job: EpisodeJob, over: threading.Event) -> Columns:
        """Run a job as often as it takes.

        What the simulator itself reports so often would happen for ever: from then on the job has
        other seeds, which follow from its own, so that the run continues.
        """
        reason, harms = "", 0
        for _ in range(ATTEMPTS):
            try:
                worker = self._worker()
                if self._closed or over.is_set():
                    raise ProcessLostError("its result is no longer wanted")
                again = job if harms < STUBBORN else job.reseeded(harms)
                done: Columns = worker.ask("job", again, self._timeout * len(job.seeds))
                return done
            except SimulatorError as error:
                given_up = self._closed or over.is_set()
                self._discard(counts=not given_up)
                if given_up:
                    raise
                harms += not isinstance(error, ProcessLostError)
                reason = str(error)
        raise EpisodeLostError(
            f"an episode was lost {ATTEMPTS} times in a row, last because: {reason}"
        )

    def _worker(self) -> SimulatorProcess:
        """Return this thread's worker, started if need be."""
        worker: SimulatorProcess | None = getattr(self._mine, "worker", None)
        if worker is None:
            worker = SimulatorProcess()
            with self._lock:
                self._alive.add(worker)
            self._mine.worker = worker
            try:
                worker.open(self._recipe)
            except (UserError, RuntimeError):
                self._discard(counts=False)
                raise
        return worker

    def _discard(self, counts: bool) -> None:
        """End this thread's worker, which failed.

        Args:
            counts: whether it is one of those replaced.
        """
        worker: SimulatorProcess = self._mine.worker
        self._mine.worker = None
        with self._lock:
            self.replaced += counts
            self._alive.remove(worker)
        worker.close()


def _end(
    process: subprocess.Popen[bytes],
    connection: Connection[SimulatorRequest, SimulatorReply],
    end: socket.socket,
    log: IO[bytes],
) -> None:
    process.kill()
    process.wait()
    connection.close()
    end.close()
    log.close()
