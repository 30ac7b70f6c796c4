"""What is told of a run while it trains: a sink for metrics, a bar, a user's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkl.runs.directory import RunDirectory


class Callback:
    """Is told of a run while it trains; derive from it, and override what you want to hear.

    What a callback raises ends the training; the round that it was told of is saved by then.
    """

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        """Training begins, or goes on.

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
        """Training is over, or was interrupted; every callback that was started is told.

        Args:
            summary: `summary.json`; None if the run did not get to its end.
        """


@contextlib.contextmanager
def telling(
    callbacks: Sequence[Callback], run: RunDirectory
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Tells callbacks of training that goes on inside the block; gives what is to be called with
    the record of each round."""
    summary: Mapping[str, Any] | None = None

    def end(callback: Callback) -> None:
        callback.on_end(summary)

    with contextlib.ExitStack() as started:
        for callback in callbacks:
            callback.on_start(run.path, run.config())
            started.callback(end, callback)

        def tell(record: Mapping[str, Any]) -> None:
            for callback in callbacks:
                callback.on_round(record)

        yield tell
        summary = run.summary()
