"""A process with one simulator in it: `python -m fedkl.simulators.worker DESCRIPTOR PARENT`.

It answers requests until the other end of the connection closes.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from fedkl.errors import UserError
from fedkl.processes import die_with
from fedkl.simulators.base import Recipe, Reply, Request, SimulatorError
from fedkl.simulators.episodes import run_episode


def main(descriptor: str, parent: str) -> None:
    """Serves one connection.

    Args:
        descriptor: number of the open file that is the connection.
        parent: number of the process that started this one.
    """
    die_with(int(parent), signal.SIGKILL)
    connection: Connection[Reply, Request] = Connection(int(descriptor))
    simulator: Any = None
    while True:
        try:
            request = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            match request.what:
                case "open":
                    simulator = Recipe(*request.argument).make()
                    result = None
                case "episode":
                    result = run_episode(simulator, request.argument)
                case method:
                    arguments = () if request.argument is None else (request.argument,)
                    result = getattr(simulator, method)(*arguments)
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
