"""Runs that are trained side by side, followed: a bar over all of them, callbacks for each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from fedkl.core.text import counted
from fedkl.experiments import workers
from fedkl.io.progress import bar
from fedkl.training.callbacks import Callback, notify
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run

R = TypeVar("R")
CallbacksOf = Callable[[Path], Sequence[Callback]]
"""The callbacks of a run, given its directory."""
_GAP = "  "


def follow(
    runs: Sequence[Path],
    resume: Callable[[workers.Trainer], R],
    place: workers.Place | None,
    console: Console | None,
    rounds: int | None = None,
    callbacks: CallbacksOf = lambda run: (),
) -> R:
    """Train what is left of some runs, and show how far they are.

    Args:
        runs: their directories.
        resume: trains them, by what it is given.
        place: where they are trained; None: in processes here.
        console: where to show it; None: nowhere.
        rounds: of all runs together; None: as many as their configs say.
        callbacks: makes what is notified of a run's rounds as it trains.
    """
    done = workers.RoundCounter(runs)
    done()
    planned = {run: of_run(RunDirectory.open(run)).federation.rounds for run in runs}
    if rounds is None:  # one that stalled has come to its end
        rounds = sum(done.of(run) if workers.is_there(run, None) else planned[run] for run in runs)
    with _Followed(callbacks) as followed, contextlib.ExitStack() as shown:
        if console is None:
            return resume(workers.Trainer(lambda line: None, followed.look, place, followed))
        label = f"{counted(len(runs), 'run')}, round"
        show = shown.enter_context(bar(console, label, rounds, lines=True))

        def say(line: str) -> None:
            console.print(line, soft_wrap=True)

        def tick() -> None:
            followed.look()
            total = min(done(), rounds)
            going_on = [f"{run.name} {done.of(run)}/{planned[run]}" for run in followed.going_on]
            show(total, _GAP.join(going_on))

        tick()
        return resume(workers.Trainer(say, tick, place, followed))


class _Followed:
    """The runs that are trained at this moment; a `workers.Watch`."""

    def __init__(self, callbacks: CallbacksOf) -> None:
        self._callbacks = callbacks
        self._open: dict[Path, _Follower] = {}

    def __enter__(self) -> _Followed:
        return self

    def __exit__(self, *error: Any) -> None:
        for follower in self._open.values():
            follower.stack.__exit__(*error)

    @property
    def going_on(self) -> list[Path]:
        """The runs that are trained at this moment."""
        return [*self._open]

    def start(self, run: Path) -> None:
        """Take note that a run is about to be trained."""
        self._open[run] = _Follower(run, self._callbacks(run))

    def look(self) -> None:
        """Tell what is new."""
        for follower in self._open.values():
            follower.look()

    def end(self, run: Path) -> None:
        """Take note that a run is no longer trained."""
        self._open[run].look()
        self._open.pop(run).stack.close()


class _Follower:
    """Reads what is new in a run's log, and tells callbacks."""

    def __init__(self, run: Path, callbacks: Sequence[Callback]) -> None:
        directory = RunDirectory(run)
        self.stack = contextlib.ExitStack()
        self._log = directory.metrics.path
        self._read = 0
        self._callbacks = callbacks
        self._told = directory.metrics.count() if callbacks else 0
        self._tell: Callable[[Mapping[str, Any]], None] = lambda record: None
        if callbacks:
            self._tell = self.stack.enter_context(notify(callbacks, directory))

    def look(self) -> None:
        if not self._callbacks or not self._log.is_file():
            return
        with self._log.open("rb") as stream:
            stream.seek(max(0, self._read - 1))
            if self._read and stream.read(1) != b"\n":  # it was resumed from before that
                self._read = stream.seek(0)
            whole = stream.read().rpartition(b"\n")[0]
        self._read += len(whole) + bool(whole)
        for line in whole.splitlines():
            record = json.loads(line)
            if record["round"] > self._told:  # rounds after a checkpoint are made again
                self._told = record["round"]
                self._tell(record)
