"""Ordinary runs side by side in one directory, trained by workers.

All are made before the first one starts, and a worker is little more than `fedkl resume RUN`. So
whatever consists of such runs goes on where it was stopped, killed or unplugged, and no run depends
on which others ran beside it, nor on where it ran: in a process on this machine, or on a cluster
(`fedkl.experiments.ray_runs`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TextIO

from fedkl.config.pretrained import Pretrained
from fedkl.core.errors import STALLED, UserError
from fedkl.core.processes import cores
from fedkl.io import files
from fedkl.io.files import explain_os_errors
from fedkl.io.progress import number
from fedkl.training import binding
from fedkl.training.directory import RunDirectory
from fedkl.training.plans import PLANS, RunsPlan
from fedkl.training.records import is_number

LOG = "worker.log"
"""Of a run: what its worker has to say."""
_AT_ONCE = 2**20
"""Bytes of a log that are read at once."""


class Worker(Protocol):
    """Trains a run; a process is one."""

    def poll(self) -> int | None:
        """Its exit code, as of a process; None while the run trains."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self) -> int:
        """Wait until it has."""


class Place(Protocol):
    """A place where runs are trained."""

    def at_once(self, runs: int) -> int:
        """Return the number of runs that train at a time."""

    def start(self, run: Path, slot: int, slots: int, until: int | None) -> Worker:
        """Resume a run.

        Args:
            run: its directory.
            slot: its place among those that train at a time, from 0.
            slots: how many train at a time.
            until: the round after which to stop; None: the last one.
        """


class Processes:
    """Worker processes on this machine, each on cores of its own."""

    def __init__(self, jobs: int) -> None:
        """Args:
        jobs: how many there are at a time.
        """
        self._jobs = jobs

    def at_once(self, runs: int) -> int:
        """As many as was said."""
        return self._jobs

    def start(self, run: Path, slot: int, slots: int, until: int | None) -> Worker:
        """A worker process; its output goes to a file of the run."""
        where = ",".join(map(str, sorted(_cores_of(slot, slots))))
        stop = [] if until is None else [str(until)]
        worker = [sys.executable, "-P", "-m", "fedkl.cli.worker"]
        with open_log(run) as log:
            return subprocess.Popen(
                [*worker, str(run), where, str(os.getpid()), *stop],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def open_log(run: Path) -> TextIO:
    """The file for what a run's worker has to say, open to add to it.

    Raises:
        UserError: it cannot be written, or is a link or a pipe.
    """
    path = run / LOG
    with explain_os_errors("write", path):
        return os.fdopen(files.open_to_write(path, append=True), "a", encoding="utf-8")


def create(
    path: Path,
    plan: RunsPlan,
    configs: Mapping[str, Mapping[str, Any]],
    starts: Mapping[str, Pretrained | None] = MappingProxyType({}),
) -> None:
    """Make a directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: says which runs.
        configs: the name of each run, and its config as TOML can hold it.
        starts: what each run starts from, if not from a new policy.

    Raises:
        UserError: the directory exists, or a config starts from a policy that is not here.
    """
    with explain_os_errors("create", path):
        for file, kind in PLANS.items():
            if (path / file).is_file():
                command = f"fedkl resume {shlex.quote(str(path))}"
                more = "" if file == "tune-d-global.toml" else ", or add to it with --add"
                raise UserError(f"{path} holds {kind} already; go on with it by `{command}`{more}")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists and is not empty; give a new directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made aside and renamed, so that all runs are there or none.
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        aside.mkdir()
    try:
        binding.make_runs(plan, aside, configs, starts)
        plan.write(aside)
        with explain_os_errors("create", path):
            aside.rename(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


class RoundCounter:
    """Counts the rounds that runs have finished; each time only what is new is read."""

    def __init__(self, runs: Sequence[Path]) -> None:
        """Args:
        runs: their directories.
        """
        self._logs = {run / "metrics.jsonl": (0, 0) for run in runs}
        """Of each log, how far it was read, and the lines up to there."""

    def __call__(self) -> int:
        """Count the rounds that all runs together have finished."""
        for log, (read, lines) in self._logs.items():
            if not log.is_file():
                continue
            with log.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size < read:  # it was resumed from before that
                    read = lines = 0
                stream.seek(read)
                while new := stream.read(_AT_ONCE):
                    read, lines = read + len(new), lines + new.count(b"\n")
            self._logs[log] = read, lines
        return sum(lines for _, lines in self._logs.values())

    def of(self, run: Path) -> int:
        """Return the rounds that one of them had finished when they were counted last."""
        return self._logs[run / "metrics.jsonl"][1]


class Watch(Protocol):
    """Is notified of the runs that train."""

    def start(self, run: Path) -> None:
        """A run is about to be trained."""

    def end(self, run: Path) -> None:
        """A run is no longer trained."""


class _Watched:
    """A worker that notifies when it ends."""

    def __init__(self, worker: Worker, end: Callable[[], None]) -> None:
        self._worker = worker
        self._end = end

    def poll(self) -> int | None:
        if (code := self._worker.poll()) is not None:
            self._end()
        return code

    def terminate(self) -> None:
        self._worker.terminate()

    def wait(self) -> int:
        return self._worker.wait()


class _WatchedPlace(NamedTuple):
    """A place that notifies of the runs it trains."""

    place: Place
    watch: Watch

    def at_once(self, runs: int) -> int:
        return self.place.at_once(runs)

    def start(self, run: Path, slot: int, slots: int, until: int | None) -> Worker:
        self.watch.start(run)
        worker = self.place.start(run, slot, slots, until)
        return _Watched(worker, partial(self.watch.end, run))


class Trainer(NamedTuple):
    """Trains what is left of runs: where, and what is notified."""

    show: Callable[[str], None]
    """Is called with a line about every run that starts or ends."""
    tick: Callable[[], None]
    """Is called a few times a second while runs train."""
    place: Place | None = None
    """None: in processes here."""
    watch: Watch | None = None
    """Is notified of the runs that train; None: nothing is notified."""

    def __call__(self, runs: Sequence[Path], jobs: int, until: int | None = None) -> None:
        """As `run_all` does it.

        Args:
            runs: their directories.
            jobs: how many processes there are at a time, if there is no other place.
            until: the round after which to stop; None: the last one.
        """
        place = self.place or Processes(jobs)
        if self.watch is not None:
            place = _WatchedPlace(place, self.watch)
        run_all(runs, place, self.show, self.tick, until)


def run_all(
    runs: Sequence[Path],
    place: Place,
    show: Callable[[str], None],
    tick: Callable[[], None],
    until: int | None = None,
) -> None:
    """Train what is left of runs that lie in one directory.

    Args:
        runs: their directories.
        place: where they are trained.
        show: is called with a line about every run that starts or ends.
        tick: is called a few times a second while runs train.
        until: the round after which to stop; None: the last one.

    Raises:
        UserError: a run could not be finished; the others were. Or one lies elsewhere.
    """
    for run in runs:
        files.refuse_link(run)
    waiting = [run for run in runs if not is_there(run, until)]
    total, failed = len(waiting), []
    slots = place.at_once(total)
    with _workers() as working:
        while waiting or working:
            while waiting and len(working) < slots:
                free = set(range(slots)) - {slot for slot, _ in working.values()}
                run, slot = waiting.pop(0), min(free)
                working[place.start(run, slot, slots, until)] = (slot, run)
                show(f"{run.name} started")
            time.sleep(0.2)
            tick()
            for worker in list(working):
                if (code := worker.poll()) is None:
                    continue
                _, run = working.pop(worker)
                ended = total - len(waiting) - len(working)
                if code not in (0, STALLED):
                    failed.append(run)
                show(f"{run.name} {_outcome(code, run)} ({ended}/{total})")
    if failed:
        names = ", ".join(run.name for run in failed)
        command = f"fedkl resume {shlex.quote(str(failed[0].parent))}"
        raise UserError(f"not finished: {names}; see {LOG} there, then `{command}`")


def is_there(run: Path, until: int | None) -> bool:
    """Return True if a run has ended, or has come as far as it should.

    One that was made longer since it ended has not.
    """
    directory = RunDirectory(run)
    if (summary := directory.summary()) is not None:
        ended = summary.get("rounds")
        planned = directory.config().get("federation", {}).get("rounds", ended)
        if summary.get("stalled") or ended is None or ended >= (until or planned):
            return True
    # A record whose checkpoint was lost is made again, the same, when the run is resumed.
    return until is not None and directory.metrics.require_rounds() >= until


def _outcome(code: int, run: Path) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    if code:
        with explain_os_errors("read", run / LOG):
            end = files.read_end(run / LOG, files.END_OF_LOG)
        lines = end.decode(errors="replace").strip().splitlines()
        word = "ended" if code == STALLED else "failed"
        return f"{word}: {lines[-1] if lines else f'exit code {code}'}"
    if not is_there(run, None):
        return f"has come to round {RoundCounter([run])()}"
    summary = RunDirectory(run).summary() or {}
    seconds = summary.get("seconds")
    took = f" in {seconds:.0f} s" if is_number(seconds) else ""
    return f"finished: return {number(summary.get('return_mean'))}{took}"


@contextlib.contextmanager
def _workers() -> Iterator[dict[Worker, tuple[int, Path]]]:
    """The running workers, none of which outlives the block."""
    working: dict[Worker, tuple[int, Path]] = {}
    try:
        yield working
    finally:
        for worker in working:
            worker.terminate()
        for worker in working:
            worker.wait()


def _cores_of(slot: int, jobs: int) -> set[int]:
    """A worker's share of the cores; threads of one run would only get in the way of another's."""
    if not hasattr(os, "sched_setaffinity"):
        return set()
    ours = cores()
    return set(ours[slot % len(ours) :: jobs]) or {ours[slot % len(ours)]}
