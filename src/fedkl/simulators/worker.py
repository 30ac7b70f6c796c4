"""A process with simulators in it: `python -m fedkl.simulators.worker DESCRIPTOR PARENT`.

It answers requests until the other end of the connection closes.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection

from fedkl.core.errors import UserError
from fedkl.core.own_code import own_code_error
from fedkl.core.processes import die_with
from fedkl.simulators.base import (
    Recipe,
    Simulator,
    SimulatorError,
    SimulatorReply,
    SimulatorRequest,
)
from fedkl.simulators.episodes import Columns, EpisodeJob, run_job


class SimulatorSet:
    """The simulators of a process, made of one recipe: as many as a job has columns."""

    def __init__(self, recipe: Recipe) -> None:
        """Make the first simulator."""
        self._recipe = recipe
        self._simulators = [recipe.make()]
        self._used = False

    def first(self) -> Simulator:
        """Return the simulator for requests that need one alone."""
        return self._simulators[0]

    def run(self, job: EpisodeJob) -> Columns:
        """Run a job in simulators that are kept for the next one, unless it needs fresh ones."""
        if self._used and self._recipe.fresh:
            self._simulators = []
        while len(self._simulators) < len(job.seeds):
            self._simulators.append(self._recipe.make())
        self._used = True
        return run_job(self._simulators[: len(job.seeds)], job)


def main(descriptor: str, parent: str) -> None:
    """Serve one connection.

    Args:
        descriptor: number of the open file that is the connection.
        parent: number of the process that started this one.
    """
    die_with(int(parent), signal.SIGKILL)
    connection: Connection[SimulatorReply, SimulatorRequest] = Connection(int(descriptor))
    simulators: SimulatorSet | None = None
    while True:
        try:
            request = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            match request.what:
                case "open":
                    simulators, result = SimulatorSet(Recipe(*request.argument)), None
                case "job":
                    assert simulators is not None
                    result = simulators.run(request.argument)
                case method:
                    assert simulators is not None
                    arguments = () if request.argument is None else (request.argument,)
                    result = getattr(simulators.first(), method)(*arguments)
            reply = SimulatorReply(result)
        except SimulatorError as error:
            reply = SimulatorReply(None, harm=str(error))
        except Exception as error:
            if (own := own_code_error(error)) is not None:
                reply = SimulatorReply(None, mistake=str(own), trace=own.trace)
            elif isinstance(error, UserError):
                reply = SimulatorReply(None, mistake=str(error))
            else:
                reply = SimulatorReply(None, defect=traceback.format_exc())
        try:
            connection.send(reply)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # SUMO's destructors take their time, and nothing is left to save.
    os._exit(0)
