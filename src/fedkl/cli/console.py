"""The consoles of commands. `out` and `err` follow the streams that a command was started with."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Any, TextIO

from rich.console import Console as _Console
from rich.text import Text

from fedkl.core.text import printable, utc

_WIDTH = 100
"""Of what is no terminal, if COLUMNS does not say."""


class Console(_Console):
    """A console on which text from files cannot command the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


out = Console(markup=False)
"""The answer that was asked for."""
err = Console(markup=False)
"""Warnings and errors."""
talk = out
"""News of what happens meanwhile: stdout, or stderr where a machine reads stdout."""


def open_streams() -> None:
    """Print on the standard streams of this moment from now on, with another character for each
    that they cannot show."""
    global out, err, talk
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    out, err = _console(sys.stdout), _console(sys.stderr)
    talk = out


def leave_stdout_alone() -> None:
    """Print on stdout only what was asked for from now on."""
    global talk
    talk = err


def say(message: str) -> None:
    """Print a line on stderr, in the name of the program."""
    err.print(f"fedkl: {message}", soft_wrap=True)


def log(message: str) -> None:
    """Print a line on stderr with the time, for what runs for days."""
    say(f"{utc(time.time())} {message}")


def warn(message: str) -> None:
    """Print a warning on stderr."""
    say(f"warning: {message}")


def _console(stream: TextIO | None) -> Console:
    """Make a console for plain text; colours and a terminal's width are rich's, as are NO_COLOR
    and TERM."""
    # A stream that was closed before we started is None.
    width = interactive = None
    if stream is None or not stream.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) else _WIDTH
        interactive = False  # where FORCE_COLOR is set, as notebooks do, only colours are forced
    return Console(
        file=stream,
        quiet=stream is None,
        highlight=False,
        markup=False,
        emoji=False,
        width=width,
        force_interactive=interactive,
    )
