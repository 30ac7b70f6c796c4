"""Runs that survive: a directory of files that are whole at every moment.

This package knows nothing of JAX, learning or federation; it takes names, arrays and mappings.
What is asked for is imported then: files and TOML are read without NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkl.runs.callbacks import Callback, telling
    from fedkl.runs.checkpoint_files import Rows
    from fedkl.runs.checkpoints import Checkpoints, Saved
    from fedkl.runs.directory import SERVING, RunDirectory, is_served
    from fedkl.runs.files import explain_os_errors, write_atomically
    from fedkl.runs.locks import Lock, lock_directory
    from fedkl.runs.metrics import MetricsLog
    from fedkl.runs.tensorboard import TensorBoardSink

_HOMES = {
    "Callback": "fedkl.runs.callbacks",
    "Checkpoints": "fedkl.runs.checkpoints",
    "Lock": "fedkl.runs.locks",
    "MetricsLog": "fedkl.runs.metrics",
    "Rows": "fedkl.runs.checkpoint_files",
    "RunDirectory": "fedkl.runs.directory",
    "SERVING": "fedkl.runs.directory",
    "Saved": "fedkl.runs.checkpoints",
    "TensorBoardSink": "fedkl.runs.tensorboard",
    "explain_os_errors": "fedkl.runs.files",
    "is_served": "fedkl.runs.directory",
    "lock_directory": "fedkl.runs.locks",
    "telling": "fedkl.runs.callbacks",
    "write_atomically": "fedkl.runs.files",
}

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
    "telling",
    "write_atomically",
]


if not TYPE_CHECKING:  # else a type checker would believe in every name

    def __getattr__(name):
        """A public name of the package."""
        if name not in _HOMES:
            raise AttributeError(f"module 'fedkl.runs' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
