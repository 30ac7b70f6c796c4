"""The run of a command, from the command line to an exit code."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fedkl.cli import console, precheck
from fedkl.cli.parser import parser
from fedkl.core.errors import STALLED, StalledError, UserError
from fedkl.core.text import one_line

_NOT_THEIRS = tuple(
    str(folder)
    for folder in (
        Path(__file__).parents[1],
        *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")),
        "<",  # what Python itself is made of has no file
    )
)
"""Beginnings of the paths of code that is not the user's."""


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 done, 1 an unforeseen error, 2 the user can mend it, 3 stalled, 130
    interrupted."""
    console.open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser(arguments).parse_args(arguments)
    if options.json or options.csv:
        console.leave_stdout_alone()
    try:
        precheck.check(options)
        options.run_command(options)
    except UserError as error:
        console.say(str(error))
        sys.exit(2)
    except StalledError as error:
        console.say(str(error))
        sys.exit(STALLED)
    except BrokenPipeError:
        # The reader of our output has seen enough; Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        console.say(f"{where}{error.strerror or error}")
        sys.exit(2)
    except MemoryError:
        console.say("there is not enough memory for this")
        sys.exit(2)
    except KeyboardInterrupt:
        resumable = options.trains and options.run is not None and options.run.is_dir()
        hint = f"; go on with `fedkl resume {shlex.quote(str(options.run))}`" if resumable else ""
        console.say(f"interrupted{hint}")
        sys.exit(130)
    except Exception as error:
        # JAX's own class for it is not known before JAX is imported.
        if "RESOURCE_EXHAUSTED" in str(error):
            console.say("there is not enough memory for this")
            sys.exit(2)
        _show(error)
        sys.exit(1)
    sys.exit(0)


def _show(error: Exception) -> None:
    """Print a traceback: of code that a user wrote, if it came by any, the places there alone.

    The last line is the exception: JAX prints notices below a traceback, and what watches a worker
    shows its last line.
    """
    places = traceback.extract_tb(error.__traceback__)
    if theirs := [place for place in places if not place.filename.startswith(_NOT_THEIRS)]:
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(theirs)]
    else:
        lines = traceback.format_exception(error)
    console.err.print("".join(lines), soft_wrap=True, end="")
    console.err.print(one_line(error), soft_wrap=True)
