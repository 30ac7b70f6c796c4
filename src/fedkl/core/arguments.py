"""Checks of arguments that people pass in Python: a mistake is named, not met later on."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

from fedkl.core.errors import UserError


def run_path(run: Any) -> Path:
    """The path of a run's directory."""
    return _path(run, f"run must be the path of a run's directory, not {run!r}")


def file_path(file: Any) -> Path:
    """The path of a file."""
    return _path(file, f"a file must be given by its path, not by {file!r}")


def _path(value: Any, wrong: str) -> Path:
    """A path, as text or as such.

    Raises:
        UserError: it is neither; `wrong` says so.
    """
    if not isinstance(value, str | Path):
        raise UserError(wrong)
    return Path(value)


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
