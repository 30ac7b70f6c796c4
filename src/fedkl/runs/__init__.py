"""Runs that survive: a directory of files that are whole at every moment.

This package knows nothing of JAX, learning or federation; it takes names, arrays and mappings.
"""

from fedkl.runs.callbacks import Callback, telling
from fedkl.runs.checkpoint_files import Rows
from fedkl.runs.checkpoints import Checkpoints, Saved
from fedkl.runs.directory import SERVING, RunDirectory, is_served
from fedkl.runs.files import explain_os_errors, write_atomically
from fedkl.runs.locks import Lock, lock_directory
from fedkl.runs.metrics import MetricsLog
from fedkl.runs.records import records
from fedkl.runs.tensorboard import TensorBoardSink

__all__ = [
    "SERVING",
    "Callback",
    "Checkpoints",
    "Lock",
    "MetricsLog",
    "Rows",
    "RunDirectory",
    "Saved",
    "TensorBoardSink",
    "explain_os_errors",
    "is_served",
    "lock_directory",
    "records",
    "telling",
    "write_atomically",
]
