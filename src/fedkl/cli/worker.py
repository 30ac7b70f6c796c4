"""A worker process: `fedkl resume RUN` on some cores, for as long as its parent lives."""

from __future__ import annotations

import os
import sys

from fedkl.cli import main
from fedkl.core.processes import die_with


def work(run: str, cores: str, parent: str, *until: str) -> None:
    """Resume a run.

    Args:
        run: the run's directory.
        cores: the numbers of those it may use, with commas between; empty: all.
        parent: the process without which it ends.
        until: the round after which it stops; none: the run's last.
    """
    die_with(int(parent))
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    main(["resume", run, *(f"--until={round}" for round in until)])


if __name__ == "__main__":
    work(*sys.argv[1:])
