"""Runs killed at random moments, and at every single system call that writes.

One helper process imports the package once and forks the victims, so that a death costs
milliseconds. (The test process itself must not fork: other tests give it threads.)
"""

import os
import subprocess
import sys

COMMON = """
import os, random, shutil, signal, sys, time
from pathlib import Path
import numpy as np
from fedkl.training.directory import RunDirectory

CONFIG = {"rounds": 3}
SMALL = 2**20  # bytes of rows up to which a checkpoint is one file

def fail(sentence):
    raise AssertionError(sentence)

def live(path, last, done=lambda round: None):
    # Creates or resumes a run and takes it to its last round, as the server loop does.
    run = RunDirectory(path)
    if not (path / "config.toml").exists():
        run = RunDirectory.create(path, CONFIG)
    with run.lock():
        run.checkpoints.small = SMALL
        found = run.checkpoints.latest(fail)
        start = found.round if found else 0
        run.metrics.truncate_after(start)
        for round in range(start + 1, last + 1):
            run.write_returns(round, arrays(round)["a"])
            run.metrics.append({"round": round, "padding": "x" * 200})
            run.checkpoints.save(round, arrays(round), rows(round), {round % 9, 2})
            done(round)
        run.write_summary({"rounds": last})

def arrays(round):
    return {"a": np.full(300, round, np.float32), "b": np.array(round, np.int32)}

def rows(round):
    # Row 2 changes in every round, the others each ninth.
    last = {number: round - (round - number) % 9 for number in range(9)} | {2: round}
    return {number: {"c": np.full(50, max(0, last[number]), np.int16)} for number in range(9)}

def inspect(path):
    # What a reader sees at any moment; the last whole round.
    run = RunDirectory.open(path)
    assert run.config() == CONFIG
    logged = [record["round"] for record in run.metrics.read()]
    assert logged == list(range(1, len(logged) + 1)), logged
    for round in logged[-3:]:
        assert (run.read_returns(round) == arrays(round)["a"]).all()
    found = run.checkpoints.latest(fail)
    assert run.summary() in (None, {"rounds": 3})
    if found is None:
        assert len(logged) <= 1, logged
        return 0
    round, loaded, loaded_rows, _ = found
    for name, array in arrays(round).items():
        assert loaded[name].dtype == array.dtype and (loaded[name] == array).all()
    assert list(loaded_rows) == list(range(9))
    for number, row in rows(round).items():
        assert (loaded_rows[number]["c"] == row["c"]).all()
    assert logged[-1] in (round, round + 1), (logged, round)
    return round

def fork(body):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        body()
        code = 0
    finally:
        os._exit(code)
"""

RANDOM = (
    COMMON
    + """
path, generator = Path(sys.argv[1]), random.Random(0)
SMALL = 0  # chains of files
begin = time.monotonic()
live(path.with_name("unharmed"), 10)
span = (time.monotonic() - begin) / 10  # of one round, so that deaths fall everywhere in it
reached = kills = 0
while kills < 100 and time.monotonic() - begin < 4:
    kills += 1
    reader, writer = os.pipe()
    pid = fork(lambda: live(path, 10**6, lambda round: os.write(writer, b"%d " % round)))
    os.close(writer)
    time.sleep(generator.uniform(0, 6 * span))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"the victim failed by itself: {status}"
    with open(reader, "rb") as file:
        reported = [int(word) for word in file.read().split()]
    if (path / "config.toml").exists():
        round = inspect(path)
        assert round >= max(reported, default=reached), (round, reported)
        reached = round
print(kills, reached)
"""
)

EXHAUSTIVE = (
    COMMON
    + """
root = Path(sys.argv[1])
CALLS = ("open", "write", "fsync", "replace", "rename", "unlink", "ftruncate", "mkdir", "close")

def die_at(victim_call):
    # SIGKILL in front of the n-th call that writes; a write takes half of its bytes first.
    count = 0
    def wrap(name, real):
        def call(*args, **options):
            nonlocal count
            count += 1
            if count == victim_call:
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            if name != "fsync":  # counts as a moment to die; a process death needs no sync
                return real(*args, **options)
        return call
    for name in CALLS:
        setattr(os, name, wrap(name, getattr(os, name)))

def attempt(path, victim_call):
    die_at(victim_call)
    live(path, 3)

def ended(pid):
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return False
    assert status == 0, status
    return True

def contents(path):
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }

assert ended(fork(lambda: attempt(root / "whole", 0)))
expected = contents(root / "whole")
assert len(expected) == 8, sorted(expected)
victim_call = 0
while True:
    victim_call += 1
    path = root / f"{victim_call}"
    if ended(fork(lambda: attempt(path, victim_call))):
        break
    if (path / "config.toml").exists():
        inspect(path)
    # Dies once more while it recovers, then is left in peace.
    ended(fork(lambda: attempt(path, 1 + victim_call % 23)))
    if (path / "config.toml").exists():
        inspect(path)
    assert ended(fork(lambda: attempt(path, 0)))
    left = contents(path)
    # A death between publishing the last checkpoint and cleaning up leaves one too many.
    extra = [name for name in left.keys() - expected.keys() if "000001." not in name]
    assert expected.items() <= left.items() and not extra, (victim_call, sorted(left))
    shutil.rmtree(path)
print("moments", victim_call - 1)
"""
)


def run_helper(script: str, path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OPENBLAS_NUM_THREADS": "1",  # no threads in a process that forks
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_sigkill_at_random_moments(tmp_path):
    kills, reached = map(int, run_helper(RANDOM, tmp_path / "run"))
    assert kills >= 10
    assert reached >= 5  # the victims did get some work done


def test_sigkill_at_every_call_that_writes(tmp_path):
    _, moments = run_helper(EXHAUSTIVE, tmp_path)
    assert int(moments) > 40
