"""What went wrong that nobody foresaw, told to whoever can mend it."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from fedkl.cli import console
from fedkl.core.text import one_line

_NOT_THEIRS = tuple(
    str(folder)
    for folder in (
        Path(__file__).parents[1],
        *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")),
        "<",  # what Python itself is made of has no file
    )
)


def show(error: Exception) -> None:
    """Prints a traceback: of code that a user wrote, if it came by any, the places there alone.

    The last line is the exception: JAX prints notices below a traceback, and whoever watches a
    worker shows its last line.
    """
    places = traceback.extract_tb(error.__traceback__)
    if theirs := [place for place in places if not place.filename.startswith(_NOT_THEIRS)]:
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(theirs)]
    else:
        lines = traceback.format_exception(error)
    console.err.print("".join(lines), soft_wrap=True, end="")
    console.err.print(one_line(error), soft_wrap=True)
