"""Several algorithms, several seeds, side by side in worker processes.

A comparison is a directory of ordinary runs. All are made before the first one starts, and a
worker is little more than `fedkl resume RUN`. So a comparison that was stopped, killed or unplugged
goes on with `fedkl resume DIR`, and no run depends on which others ran beside it.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedkl.config import Config
from fedkl.errors import STALLED, UserError
from fedkl.processes import cores
from fedkl.progress import number
from fedkl.runs import RunDirectory, explain_os_errors, lock_directory
from fedkl.runs.comparison import Plan, is_comparison, name_of, read_plan, runs_of, write_plan

__all__ = ["Plan", "create", "go_on", "is_comparison", "read_plan", "rounds_done", "runs_of"]

_LOG = "worker.log"


def create(path: Path, plan: Plan, configure: Callable[[str, int], Config]) -> None:
    """Makes the comparison's directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is compared.
        configure: the config of an algorithm and a seed.

    Raises:
        UserError: a config is wrong (nothing is written then), or the directory exists.
    """
    configs = {
        name_of(algorithm, seed): configure(algorithm, seed)
        for algorithm in plan.algorithms
        for seed in plan.seeds
    }
    with explain_os_errors("create", path):
        if is_comparison(path):
            command = f"fedkl resume {shlex.quote(str(path))}"
            raise UserError(f"{path} holds a comparison already; go on with it by `{command}`")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists and is not empty; give a new directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made aside and renamed, so that there is a whole comparison or none.
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        aside.chmod(0o755)
    try:
        for name, config in configs.items():
            RunDirectory.create(aside / name, config.mapping())
        write_plan(aside, plan)
        with explain_os_errors("create", path):
            aside.rename(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def rounds_done(path: Path, plan: Plan) -> int:
    """How many rounds all runs together have finished."""
    logs = [run / "metrics.jsonl" for run in runs_of(path, plan)]
    return sum(log.read_bytes().count(b"\n") for log in logs if log.exists())


def go_on(path: Path, plan: Plan, show: Callable[[str], None], tick: Callable[[], None]) -> None:
    """Runs what is left, at most `plan.jobs` at a time.

    Args:
        path: the comparison's directory.
        plan: its plan.
        show: is told in a line of every run that starts or ends.
        tick: is called a few times a second while runs go on.

    Raises:
        UserError: a run could not be finished; the others were.
    """
    with lock_directory(path):
        _run_all(path, plan, show, tick)


def _run_all(path: Path, plan: Plan, show: Callable[[str], None], tick: Callable[[], None]) -> None:
    waiting = [run for run in runs_of(path, plan) if not (run / "summary.json").exists()]
    total, failed = len(waiting), []
    with _workers() as working:
        while waiting or working:
            while waiting and len(working) < plan.jobs:
                free = set(range(plan.jobs)) - {slot for slot, _ in working.values()}
                run, slot = waiting.pop(0), min(free)
                working[_start(run, slot, plan.jobs)] = (slot, run)
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
        raise UserError(
            f"not finished: {names}; see {_LOG} there, then `fedkl resume {shlex.quote(str(path))}`"
        )


def _outcome(code: int, run: Path) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    if code:
        lines = (run / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        word = "ended" if code == STALLED else "failed"
        return f"{word}: {lines[-1] if lines else f'exit code {code}'}"
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
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


def _start(run: Path, slot: int, jobs: int) -> subprocess.Popen[bytes]:
    cores = ",".join(map(str, sorted(_cores_of(slot, jobs))))
    with (run / _LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "fedkl.cli.worker", str(run), cores, str(os.getpid())],
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
