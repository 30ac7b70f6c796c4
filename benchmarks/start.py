"""Seconds until the command line answers: help, and what is wrong with what was typed.

    python benchmarks/start.py [--repetitions 5]

Prints the median of the wall clock, of the processor's time (user and system), and the memory at
the most. On a machine that does other things the processor's time is what can be compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

COMMANDS = (
    ["--help"],
    ["train", "--help"],
    ["train", "reacher-idd"],
    ["train", "demo", "--algorithm", "fedprix"],
    ["reproduce", "nosuch", "--run", "x"],
    ["resume", "nosuch"],
)


def measure(command: list[str]) -> tuple[float, float, float]:
    """Run a command: seconds by the clock and of the processor, and megabytes."""
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "fedkl", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    clock = time.perf_counter() - started
    return clock, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5, metavar="R", help="of each command")
    options = parser.parse_args()
    print(f"{'command':<50} {'s':>6} {'cpu s':>6} {'MB':>5}")
    for command in COMMANDS:
        runs = [measure(command) for _ in range(options.repetitions)]
        clock, cpu, memory = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{'fedkl ' + ' '.join(command):<50} {clock:>6.2f} {cpu:>6.2f} {memory:>5.0f}")


if __name__ == "__main__":
    main()
