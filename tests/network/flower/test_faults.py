"""Twenty clients of which three in ten fail in every round, with a server that may be killed, too.

What the log says is then done again in this process, with those clients failing that were left out:
the model must be the same, bit for bit.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from left_behind import nothing_is_left_of

pytest.importorskip("flwr")

from fedkl.config.config import from_mapping
from fedkl.core.plugins import load_plugin
from fedkl.engines import Failure
from fedkl.io.arrays import to_arrays
from fedkl.server.loop import Federation
from fedkl.server.setup import local_engine
from fedkl.training.directory import RunDirectory

CLIENTS, ROUNDS, PER_ROUND = 20, 30, 8
FAULTY = Path(__file__).parent / "plugins" / "faulty.py"
SETTINGS = [
    f"federation.clients_per_round={PER_ROUND}", "federation.deadline=60", "federation.retries=0",
    "federation.quorum=2", "learner.iterations=2", "learner.steps=64", "learner.epochs=2",
    "learner.minibatch=16", "evaluation.every=1000", "evaluation.episodes=2", "checkpoint.every=1",
]  # fmt: skip
LONGEST = 3600.0


class Without:
    """Clients in this process, some of which fail in some rounds."""

    def __init__(self, config, rejected):
        self._engine = local_engine(config)
        self._rejected = rejected

    def run(self, work, model, jobs, key):
        for client, answer in self._engine.run(work, model, jobs, key):
            gone = work.name == "train" and client in self._rejected[jobs[0].round + 1]
            yield client, Failure("it failed then") if gone else answer

    def __getattr__(self, name):
        return getattr(self._engine, name)


def start(*arguments):
    """A command in the background, whose lines are in a file."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fedkl", *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def records(run):
    log = run / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def killed_after(process, run, rounds):
    """Kills the server in the middle of the round after so many."""
    end = time.monotonic() + LONGEST
    while len(records(run)) < rounds and process.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(random.Random(rounds).uniform(0, 5))
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def finished(process):
    try:
        _, err = process.communicate(timeout=LONGEST)
    finally:
        process.kill()
    assert process.returncode == 0, err


def served(tmp_path):
    run = tmp_path / "run"
    return run, [
        "serve", "probe-point", "--local", CLIENTS, "--rounds", ROUNDS, "--run", run,
        "--plugin", FAULTY, "--set", *SETTINGS,
    ]  # fmt: skip


def check(run):
    """What a run with faults must have come to."""
    log = records(run)
    assert [record["round"] for record in log] == [*range(1, ROUNDS + 1)]
    load_plugin(FAULTY)
    from fedkl.network.client import Session

    fault = Session.do.__globals__["fault"]
    rejected, reasons, answers = {}, Counter(), Counter()
    for record in log:
        out = rejected[record["round"]] = {entry["client"] for entry in record["rejected"]}
        trained = [row["client"] for row in record["clients"]]
        # Nobody is counted twice, and everybody once.
        assert sorted([*trained, *out]) == record["selected"]
        # Who failed is left out, and nobody else.
        assert out == {c for c in record["selected"] if fault(c, record["round"] - 1)}
        answers.update(counted=len(trained), left_out=len(out))
        assert record["note"] is None or len(trained) < 2
        reasons.update(entry["reason"][:60] for entry in record["rejected"])
    print(answers, reasons)
    config = from_mapping(RunDirectory.open(run).config())
    again = Federation(config, Without(config, rejected))
    for record in log:
        assert again.run_round()["selected"] == record["selected"]
    saved = RunDirectory.open(run).checkpoints.latest(print).arrays
    here = to_arrays(again.state)
    assert saved.keys() == here.keys()
    assert [name for name in saved if saved[name].tobytes() != here[name].tobytes()] == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found by /proc")
@pytest.mark.parametrize("kills", [0, 5])
def test_with_clients_that_fail_every_honest_round_counts_and_nothing_is_left(tmp_path, kills):
    run, arguments = served(tmp_path)
    process = start(*arguments)
    try:
        for kill in range(kills):
            killed_after(process, run, 3 + 5 * kill)
            # Each client tells a server that is no more that it leaves, for up to 10 s.
            nothing_is_left_of(tmp_path)
            process = start("resume", run)
        finished(process)
    finally:
        process.kill()
    nothing_is_left_of(tmp_path)
    check(run)
