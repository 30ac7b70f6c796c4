"""The run of a command, from the command line to an exit code."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fedkl.cli import console, precheck
from fedkl.cli.parser import parser
from fedkl.core.errors import STALLED, StalledError, UserError, missing_dependency
from fedkl.core.own_code import own_code_error
from fedkl.core.text import one_line


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 done, 1 a defect of ours, 2 the user can mend it (also in code of
    their own), 3 stalled, 130 interrupted."""
    console.open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser(arguments).parse_args(arguments)
    if options.json or options.csv:
        console.leave_stdout_alone()
    try:
        precheck.check(options)
        options.run_command(options)
    except BrokenPipeError:
        # The reader of our output has seen enough; Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        resumable = options.trains and options.run is not None and options.run.is_dir()
        hint = f"; go on with `fedkl resume {shlex.quote(str(options.run))}`" if resumable else ""
        console.say(f"interrupted{hint}")
        sys.exit(130)
    except Exception as error:
        sys.exit(_explain(error, getattr(options, "run", None)))
    sys.exit(0)


def _explain(error: Exception, run: Path | None) -> int:
    """Say what went wrong, and return the exit code."""
    # JAX's own class for it is not known before JAX is imported.
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        console.say("there is not enough memory for this")
    elif missing := missing_dependency(error):
        console.say(missing)
    elif told := own_code_error(error):
        # Rarely asked for, and it knows of runs.
        from fedkl.training import tracebacks

        where = tracebacks.write("".join(traceback.format_exception(error)), run)
        console.say(f"{told}; the whole traceback is in {where}")
    elif isinstance(error, UserError):
        console.say(str(error))
    elif isinstance(error, StalledError):
        console.say(str(error))
        return STALLED
    elif isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        console.say(f"{file}{error.strerror or error}")
    else:
        # The last line is the exception: JAX prints notices below a traceback.
        console.err.print("".join(traceback.format_exception(error)), soft_wrap=True, end="")
        console.err.print(one_line(error), soft_wrap=True)
        return 1
    return 2
