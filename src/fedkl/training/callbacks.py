"""Callbacks of a run while it trains: a sink for metrics, a bar, a user's own."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedkl.core.errors import MissingPackageError
from fedkl.io import files
from fedkl.io.progress import RoundProgress
from fedkl.training.directory import RunDirectory


class Callback:
    """Is notified of a run while it trains; derive from it, and override what you want to hear.

    It is called in the process that calls `fedkl.train`, `resume`, `compare` or `tune`. The runs of
    the latter two are trained in processes of their own, whose logs are followed: their callbacks
    hear of a round shortly after it is over. Each run has callbacks of its own, as several train at
    a time.

    What a callback raises ends the training; the round that it was told of is saved by then.
    """

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        """Training begins, or resumes.

        Args:
            run: the run's directory.
            config: every setting, as in `config.toml`.
        """

    def on_round(self, record: Mapping[str, Any]) -> None:
        """A round is over, logged and, if it was time, saved.

        Args:
            record: a line of `metrics.jsonl`. A run that is resumed repeats the rounds after its
                last checkpoint, with the same numbers.
        """

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        """Training is over, or was interrupted; every callback that was started is notified.

        Args:
            summary: `summary.json`; None if the run did not get to its end.
        """


@contextlib.contextmanager
def notify(
    callbacks: Sequence[Callback], run: RunDirectory, config: Mapping[str, Any] | None = None
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Tell callbacks of the training inside the block.

    Args:
        callbacks: which are notified.
        run: the run's directory.
        config: that it is trained with, where config.toml is yet to say so; None: it does.

    Yields:
        A function to be called with the record of each round.
    """
    summary: Mapping[str, Any] | None = None

    def end(callback: Callback) -> None:
        callback.on_end(summary)

    with contextlib.ExitStack() as started:
        for callback in callbacks:
            callback.on_start(run.path, run.config() if config is None else config)
            started.callback(end, callback)

        def tell(record: Mapping[str, Any]) -> None:
            for callback in callbacks:
                callback.on_round(record)

        yield tell
        summary = run.summary()


class ProgressBar(Callback):
    """A bar that shows a run as it trains: rounds, the last one in a few words, the time left.

    Attributes:
        moved: True once a round was shown.
    """

    def __init__(
        self,
        console: Console,
        until: int | None = None,
        shown: Callable[[RoundProgress], None] = lambda progress: None,
    ) -> None:
        """Make the bar.

        Args:
            console: where to show it; on what is no terminal there are lines.
            until: the round after which training stops.
            shown: is given the bar, to show something beside it.
        """
        self.moved = False
        self._console = console
        self._until = until
        self._shown = shown
        self._open = contextlib.ExitStack()
        self._progress: RoundProgress | None = None

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        from fedkl.config.config import from_mapping  # a callback of one's own needs no JAX

        chosen = from_mapping(config)  # a line may be missing that has a default
        rounds = chosen.federation.rounds
        last = rounds if self._until is None else min(self._until, rounds)
        progress = RoundProgress(self._console, last, chosen.algorithm.distance)
        self._progress = self._open.enter_context(progress)
        self._shown(self._progress)

    def on_round(self, record: Mapping[str, Any]) -> None:
        assert self._progress is not None
        self.moved = True
        self._progress.show(record)

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        self._open.close()


class TensorBoardSink(Callback):
    """Writes the scalars of metrics records as a TensorBoard event file.

    tensorboardX's `SummaryWriter` hands events to a thread; when the disk is full that thread dies
    and the caller blocks for ever. This writes the same events in the caller's thread, so a
    failure is a `UserError` like any other.

    Args:
        path: the folder that `tensorboard --logdir` is given; a resumed run uses the same one.

    Raises:
        UserError: tensorboardX is not installed.
    """

    def __init__(self, path: Path):
        try:
            from tensorboardX import event_file_writer
            from tensorboardX.proto import event_pb2, summary_pb2
        except ImportError as error:
            raise MissingPackageError(
                "TensorBoard output needs tensorboardX", "tensorboard"
            ) from error
        self.path = Path(path)
        self._new_file = event_file_writer.EventsWriter
        self._event = event_pb2.Event
        self._session = event_pb2.SessionLog
        self._summary = summary_pb2.Summary
        self._file: Any = None

    def on_round(self, record: Mapping[str, Any]) -> None:
        """Write every finite scalar of a record, and how many clients were rejected.

        Args:
            record: a metrics record; "round" is the step, nested mappings become "outer/inner".
        """
        step = int(record["round"])
        scalars = {tag: value for tag, value in _scalars(record) if tag != "round"}
        values = [
            self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()
        ]
        with files.explain_os_errors("write", self.path):
            if self._file is None:
                self._open(step)
            event = self._event(
                wall_time=time.time(), step=step, summary=self._summary(value=values)
            )
            self._file.write_event(event)
            self._file.flush()

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        """End the event file; nothing is lost without it, since every record is flushed."""
        if self._file is not None:
            with files.explain_os_errors("write", self.path):
                self._file.close()
            self._file = None

    def _open(self, step: int) -> None:
        files.refuse_link(self.path)
        files.make_directory(self.path)
        # The library's own name is unique to the second only; the suffix keeps a quick resume from
        # overwriting the file before it, and the files in order.
        self._file = self._new_file(str(self.path / "events"), f".{time.time_ns()}")
        # Tells TensorBoard to hide what an interrupted process had written from this round on.
        start = self._session(status=self._session.START)
        self._file.write_event(self._event(wall_time=time.time(), step=step, session_log=start))


def _scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{prefix}{name}/")
            continue
        if name == "rejected" and isinstance(value, (list, tuple)):
            value = len(value)
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, (bool, int, float)) and math.isfinite(value):
            yield prefix + name, float(value)
