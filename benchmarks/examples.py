"""How long the commands take that the README shows, one after the other as they stand there.

    python benchmarks/examples.py [--only TEXT ...] [--work DIR]

Prints the seconds by the clock and of the processor (user and system, of all processes). A
command that asks for another machine is left out. Runs go to a folder that is removed, or stay in
DIR.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_SHOWN = re.compile(r"^ {4}(fedkl [^#\n]+)", re.MULTILINE)
_ELSEWHERE = ("--ray",)
"""Options of commands that need a machine of the reader's."""


class Taken(NamedTuple):
    """How a command ended, and how long it took."""

    code: int
    wall: float
    cpu: float


def commands(text: str) -> list[str]:
    """The commands that a page shows in blocks, in their order."""
    shown = [line.strip() for line in _SHOWN.findall(text)]
    return [line for line in shown if not any(option in line for option in _ELSEWHERE)]


def run(command: str, folder: Path) -> Taken:
    """Run a command in a folder, with its output in a file there."""
    words = [sys.executable, "-m", "fedkl", *shlex.split(command)[1:]]
    started = time.perf_counter()
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    return Taken(process.returncode, wall, used.ru_utime + used.ru_stime)


def main() -> None:
    """Run the README's commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="those that have one of these")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep the runs here")
    options = parser.parse_args()
    shown = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="fedkl-examples-") as temporary:
        folder = options.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "examples").exists():
            (folder / "examples").symlink_to(ROOT / "examples")
        print(f"{'command':<90} {'code':>4} {'s':>6} {'cpu s':>6}", flush=True)
        for command in shown:
            if options.only is None or any(text in command for text in options.only):
                code, wall, cpu = run(command, folder)
                print(f"{command:<90} {code:>4} {wall:>6.0f} {cpu:>6.0f}", flush=True)


if __name__ == "__main__":
    main()
