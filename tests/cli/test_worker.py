"""A worker is `fedkl resume` on some cores."""

import os
import subprocess
import sys

from fedkl.core.processes import cores

PROGRAM = """
import os, sys
from fedkl.cli import worker
worker.main = lambda arguments: print(len(os.sched_getaffinity(0)), *arguments)
worker.work(*sys.argv[1:])
"""
"""Says on how many cores it would do what."""


def test_a_worker_resumes_its_run_on_its_cores():
    command = [sys.executable, "-c", PROGRAM, "run", str(cores()[0]), str(os.getpid()), "3"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert ended.stdout.split() == ["1", "resume", "run", "--until=3"]
