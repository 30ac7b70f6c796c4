"""Runs the command that the command line names, and turns what goes wrong into an exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from fedkl.cli import console, failures, interrupts, precheck
from fedkl.cli.parser import parser
from fedkl.core.errors import STALLED, StalledError, UserError


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits: 0 done, 1 nobody foresaw it, 2 the user can mend it, 3 stalled, 130
    interrupted."""
    console.open_streams()
    options = parser().parse_args(arguments)
    if options.json or options.csv:
        console.leave_stdout_alone()
    try:
        precheck.check(options)
        with interrupts.ending_at_once():
            command = getattr(import_module(f"fedkl.cli.{options.module}"), options.function)
        interrupts.hear()
        command(options)
    except UserError as error:
        console.say(str(error))
        sys.exit(2)
    except StalledError as error:
        console.say(str(error))
        sys.exit(STALLED)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not try to flush the rest.
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
        failures.show(error)
        sys.exit(1)
    sys.exit(0)
