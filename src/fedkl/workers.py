"""Ordinary runs side by side in one directory, trained by worker processes.

All are made before the first one starts, and a worker is little more than `fedkl resume RUN`. So
whatever consists of such runs goes on where it was stopped, killed or unplugged, and no run depends
on which others ran beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkl.errors import STALLED, UserError
from fedkl.processes import cores
from fedkl.progress import number
from fedkl.runs import RunDirectory, explain_os_errors

PLANS = {
    "compare.toml": "a comparison",
    "tune.toml": "a tuning",
    "tune-d-global.toml": "a measurement of d_global",
}
"""The file that makes a directory what it is."""
_LOG = "worker.log"


def create(
    path: Path, configs: Mapping[str, Mapping[str, Any]], write_plan: Callable[[Path], None]
) -> None:
    """Makes a directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        configs: the name of each run, and its config as TOML can hold it.
        write_plan: writes one of `PLANS` into the directory.

    Raises:
        UserError: the directory exists.
    """
    with explain_os_errors("create", path):
        for file, kind in PLANS.items():
            if (path / file).is_file():
                command = f"fedkl resume {shlex.quote(str(path))}"
                raise UserError(f"{path} holds {kind} already; go on with it by `{command}`")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists and is not empty; give a new directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made aside and renamed, so that all runs are there or none.
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        aside.chmod(0o755)
    try:
        for name, config in configs.items():
            RunDirectory.create(aside / name, config)
        write_plan(aside)
        with explain_os_errors("create", path):
            aside.rename(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def rounds_done(runs: Sequence[Path]) -> int:
    """How many rounds all runs together have finished."""
    logs = [run / "metrics.jsonl" for run in runs]
    return sum(log.read_bytes().count(b"\n") for log in logs if log.exists())


def run_all(
    runs: Sequence[Path],
    jobs: int,
    show: Callable[[str], None],
    tick: Callable[[], None],
    until: int | None = None,
) -> None:
    """Trains what is left of runs that lie in one directory.

    Args:
        runs: their directories.
        jobs: how many go on at a time.
        show: is told in a line of every run that starts or ends.
        tick: is called a few times a second while runs go on.
        until: the round after which to stop; None: the last one.

    Raises:
        UserError: a run could not be finished; the others were.
    """
    waiting = [run for run in runs if not _is_there(run, until)]
    total, failed = len(waiting), []
    with _workers() as working:
        while waiting or working:
            while waiting and len(working) < jobs:
                free = set(range(jobs)) - {slot for slot, _ in working.values()}
                run, slot = waiting.pop(0), min(free)
                working[_start(run, _cores_of(slot, jobs), until)] = (slot, run)
                show(f"{run.name} started")
            time.sleep(0.2)
            tick()
            for process in [p for p in working if p.poll() is not None]:
                _, run = working.pop(process)
                ended = total - len(waiting) - len(working)
                if process.returncode not in (0, STALLED):
                    failed.append(run)
                show(f"{run.name} {_outcome(process.returncode, run)} ({ended}/{total})")
    if failed:
        names = ", ".join(run.name for run in failed)
        command = f"fedkl resume {shlex.quote(str(failed[0].parent))}"
        raise UserError(f"not finished: {names}; see {_LOG} there, then `{command}`")


def _is_there(run: Path, until: int | None) -> bool:
    """Whether a run has ended, or has come as far as it should."""
    if (run / "summary.json").exists():
        return True
    # A record whose checkpoint was lost is made again, the same, when the run goes on.
    records = RunDirectory(run).metrics.read() if until is not None else []
    return bool(records) and records[-1]["round"] >= until


def _outcome(code: int, run: Path) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    if code:
        lines = (run / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        word = "ended" if code == STALLED else "failed"
        return f"{word}: {lines[-1] if lines else f'exit code {code}'}"
    file = run / "summary.json"
    if not file.exists():
        return f"has come to round {rounds_done([run])}"
    summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return f"finished: return {number(summary['return_mean'])} in {summary['seconds']:.0f} s"


@contextlib.contextmanager
def _workers() -> Iterator[dict[subprocess.Popen[bytes], tuple[int, Path]]]:
    """The running workers, none of which outlives the block."""
    working: dict[subprocess.Popen[bytes], tuple[int, Path]] = {}
    try:
        yield working
    finally:
        for process in working:
            process.terminate()
        for process in working:
            process.wait()


def _start(run: Path, own: set[int], until: int | None) -> subprocess.Popen[bytes]:
    """A worker on cores of its own; empty: on all."""
    where = ",".join(map(str, sorted(own)))
    stop = [] if until is None else [str(until)]
    worker = [sys.executable, "-P", "-m", "fedkl.cli.worker"]
    with (run / _LOG).open("ab") as log:
        return subprocess.Popen(
            [*worker, str(run), where, str(os.getpid()), *stop],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _cores_of(slot: int, jobs: int) -> set[int]:
    """A worker's share of the cores; threads of one run would only get in the way of another's."""
    if not hasattr(os, "sched_setaffinity"):
        return set()
    ours = cores()
    return set(ours[slot % len(ours) :: jobs]) or {ours[slot % len(ours)]}
