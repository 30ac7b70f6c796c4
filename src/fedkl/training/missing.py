"""Checkpoints that should be there and are not: they were removed."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from fedkl.core.errors import UserError
from fedkl.core.text import counted
from fedkl.io.locks import last_saved
from fedkl.training.directory import RunDirectory
from fedkl.training.records import require_sensible

Warn = Callable[[str], None]


def require_checkpoints(
    run: RunDirectory,
    done: int,
    logged: int,
    ended: int,
    every: int,
    warn: Warn,
    best: bool = False,
) -> None:
    """Refuse to resume if a checkpoint is missing without a word, or a part of the log would be
    lost.

    Args:
        run: the run's directory.
        done: the round of the checkpoint that is used; 0 if there is none.
        logged: how many rounds the log has.
        ended: the round at which the run ended, if it did; it has a checkpoint, too.
        every: so many rounds lie between two, as the config has it.
        warn: is notified of one that is missing.
        best: the best round up to there is used, and not the checkpoint itself.

    Raises:
        UserError: rounds were logged, and every checkpoint that they had is gone.
    """
    # The checkpoint of the last round may not have been written yet when the process ended.
    due = max((logged - 1) // every * every, last_saved(run.path) or 0, ended)
    # Beside a run that is being trained, there may be newer ones by now.
    if due <= max([done, *run.checkpoints.rounds()]):
        return
    if done == 0 and not logged:
        return  # to begin again loses nothing
    if done == 0:
        again = f"fedkl train {shlex.quote(str(run.path / 'config.toml'))}"
        raise UserError(
            f"{run.path} has a log of {counted(logged, 'round')} and no checkpoint, and to go on "
            f"would be to begin again and erase it: put {run.checkpoints.directory} back, or begin "
            f"again under another name with `{again}`"
        )
    used = f"the best round up to round {done}" if best else f"that of round {done}"
    warn(
        f"the checkpoint of round {due} is missing, so {used} is used; to go on is to train the "
        "rounds after it again"
    )


def say_missing_best(run: RunDirectory, done: int, warn: Warn) -> None:
    """Warn if the best round of a run is not the one that was kept.

    Args:
        run: the run's directory.
        done: the round of the best checkpoint that is used.
        warn: is notified.
    """
    until = run.newest()
    records, reached = run.metrics.read(), {}
    for record in records:
        require_sensible(run.metrics, record, ("round", "return_mean"))
        if record["return_mean"] is not None and record["round"] <= until:
            reached[record["round"]] = record["return_mean"]
    if (records[-1]["round"] if records else 0) < until:
        warn(f"{run.metrics.path} ends before round {until}, and cannot tell which was the best")
        return
    best = max(reached, key=reached.__getitem__, default=done)
    if best != done:
        warn(f"round {best} was better, but its checkpoint in {run.best.directory} is missing")


def say_lost_best(run: RunDirectory, warn: Warn) -> None:
    """Warn if the best round of a run is damaged or gone: no training makes it again.

    Args:
        run: the run's directory.
        warn: is notified.
    """
    try:
        kept = run.best.peek(warn, (), run.newest())
    except UserError as error:
        warn(str(error))
        return
    say_missing_best(run, 0 if kept is None else kept.round, warn)
