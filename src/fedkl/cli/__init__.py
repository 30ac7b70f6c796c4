"""The command line: parses, calls, prints.

It knows all the others and is known by none; what computes is imported when a command runs.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from fedkl.cli import interrupts
from fedkl.core.errors import missing_dependency


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit; see `fedkl.cli.command`."""
    try:
        # Here, because importing takes a while in which Ctrl-C may be pressed.
        with interrupts.ending_at_once():
            from fedkl.cli.command import run

        run(arguments)
    except KeyboardInterrupt:
        print("fedkl: interrupted", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        if not (missing := missing_dependency(error)):
            raise
        print(f"fedkl: {missing}", file=sys.stderr)
        sys.exit(2)


__all__ = ["main"]
