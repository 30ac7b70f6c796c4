"""Engines run the work that is asked of clients; the server's loop is the same for each."""

from fedkl.engines.base import Engine, Failure, Job
from fedkl.engines.in_process import InProcess
from fedkl.engines.shared_world import InSharedWorld

__all__ = ["Engine", "Failure", "InProcess", "InSharedWorld", "Job"]
