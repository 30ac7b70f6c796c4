"""A command that ends with the process that started it:
`python -m fedkl.network.flower.attached PARENT COMMAND ...`."""

from __future__ import annotations

import os
import sys

from fedkl.core.processes import die_with


def main(parent: str, *command: str) -> None:
    """Becomes the command.

    Args:
        parent: the number of the process without which it ends.
        command: with its arguments; looked for on the PATH.
    """
    die_with(int(parent))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
