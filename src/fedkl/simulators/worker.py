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
from fedkl.core.processes import die_with
from fedkl.simulators.base import Recipe, Reply, Request, Simulator, SimulatorError
from fedkl.simulators.episodes import Columns, Job, run_job


class Stage:
    """The simulators of a process, made of one recipe: as many as a job has columns."""

    def __init__(self, recipe: Recipe) -> None:
        """Makes the first."""
        self._recipe = recipe
        self._simulators = [recipe.make()]
        self._used = False

    def first(self) -> Simulator:
        """The simulator for whoever wants one alone."""
        return self._simulators[0]

    def run(self, job: Job) -> Columns:
        """Runs a job in simulators that are kept for the next one, unless it needs fresh ones."""
        if self._used and self._recipe.fresh:
            self._simulators = []
        while len(self._simulators) < len(job.seeds):
            self._simulators.append(self._recipe.make())
        self._used = True
        return run_job(self._simulators[: len(job.seeds)], job)


def main(descriptor: str, parent: str) -> None:
    """Serves one connection.

    Args:
        descriptor: number of the open file that is the connection.
        parent: number of the process that started this one.
    """
    die_with(int(parent), signal.SIGKILL)
    connection: Connection[Reply, Request] = Connection(int(descriptor))
    stage: Stage | None = None
    while True:
        try:
            request = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            match request.what:
                case "open":
                    stage, result = Stage(Recipe(*request.argument)), None
                case "job":
                    assert stage is not None
                    result = stage.run(request.argument)
                case method:
                    assert stage is not None
                    arguments = () if request.argument is None else (request.argument,)
                    result = getattr(stage.first(), method)(*arguments)
            reply = Reply(result)
        except UserError as error:
            reply = Reply(None, mistake=str(error))
        except SimulatorError as error:
            reply = Reply(None, harm=str(error))
        except Exception:
            reply = Reply(None, defect=traceback.format_exc())
        try:
            connection.send(reply)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # SUMO's destructors take their time, and nothing is left to save.
    os._exit(0)
