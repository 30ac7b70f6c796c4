"""Runs that survive: a directory of files that are whole at every moment.

This package knows nothing of JAX, learning or federation; it takes names, arrays and mappings.
"""

from fedkl.runs.checkpoint_files import Rows
from fedkl.runs.checkpoints import Checkpoints, Saved
from fedkl.runs.directory import RunDirectory, lock_directory
from fedkl.runs.files import explain_os_errors, write_atomically
from fedkl.runs.metrics import MetricsLog
from fedkl.runs.tensorboard import TensorBoardSink

__all__ = [
    "Checkpoints",
    "MetricsLog",
    "Rows",
    "RunDirectory",
    "Saved",
    "TensorBoardSink",
    "explain_os_errors",
    "lock_directory",
    "write_atomically",
]
