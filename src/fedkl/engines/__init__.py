"""Engines run the work that is asked of clients; the server's loop is the same for each.

They know clients and their work, and nothing of the server that asks for it.
"""

from fedkl.clients.work import Evaluate, Train
from fedkl.engines.base import Engine, Failure, Job
from fedkl.engines.in_process import InProcess
from fedkl.engines.shared_world import InSharedWorld

__all__ = ["Engine", "Evaluate", "Failure", "InProcess", "InSharedWorld", "Job", "Train"]
