"""A worker is `fedkl resume` on some cores."""

import os
import subprocess
import sys

import pytest
from finished_runs import smallest

from fedkl import training
from fedkl.processes import cores

PROGRAM = """
import os, sys
from fedkl.cli import worker
worker.main = lambda arguments: print(os.environ["PJRT_NPROC"], *arguments)
worker.work(*sys.argv[1:])
"""
"""Says with how many threads it would do what."""


@pytest.mark.parametrize(("minibatch", "threads"), [(64, "1"), (65, "8")])
def test_a_worker_on_one_core_has_one_thread_where_bits_allow_it(tmp_path, minibatch, threads):
    path = tmp_path / "run"
    training.create(smallest(settings={"learner.minibatch": minibatch}), path)
    core = str(cores()[0])
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), core, str(os.getpid()), "3"],
        env={k: v for k, v in os.environ.items() if k != "PJRT_NPROC"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stdout.split() == [threads, "resume", str(path), "--until=3"]


def test_what_is_wrong_with_a_run_is_left_to_resume(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "none"), "", str(os.getpid())]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert ended.stdout.split()[1:] == ["resume", str(tmp_path / "none")]
