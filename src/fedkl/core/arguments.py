"""Checks of arguments that people pass in Python: a mistake is named, not met later on."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

from fedkl.core.errors import UserError


def run_path(run: Any) -> Path:
    """The path of a run's directory.

    Raises:
        UserError: it is neither a text nor a path.
    """
    if not isinstance(run, str | Path):
        raise UserError(f"run must be the path of a run's directory, not {run!r}")
    return Path(run)


def file_path(file: Any) -> Path:
    """The path of a file.

    Raises:
        UserError: it is neither a text nor a path.
    """
    if not isinstance(file, str | Path):
        raise UserError(f"a file must be given by its path, not by {file!r}")
    return Path(file)


def whole(name: str, value: Any, least: int) -> int:
    """A whole number, also one of NumPy.

    Raises:
        UserError: it is something else, or too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise UserError(f"{name} must be a whole number from {least} on, not {value!r}")
    return number
