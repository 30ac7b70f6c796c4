"""Where the commands print. `out` and `err` follow the streams that a command was started with."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console

out = Console(markup=False)
err = Console(markup=False)


def open_streams() -> None:
    """Prints on the standard streams of this moment from now on."""
    global out, err
    out, err = _console(sys.stdout), _console(sys.stderr)


def say(message: str) -> None:
    """A line on stderr, in the name of the program."""
    err.print(f"fedkl: {message}", soft_wrap=True)


def _console(stream: TextIO | None) -> Console:
    """Plain text, at least 100 columns wide where there is no terminal to measure."""
    # A stream that whoever started us has closed is None.
    width = None if stream is not None and stream.isatty() else 100
    return Console(file=stream, quiet=stream is None, highlight=False, markup=False, width=width)
