"""Training from Python as the commands do it, with a run directory and callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from fedkl.config.checks import warn_of_doubts
from fedkl.config.config import Config
from fedkl.core.arguments import run_path, whole
from fedkl.core.errors import UserError
from fedkl.engines import Engine
from fedkl.server.loop import Federation
from fedkl.server.setup import local_engine
from fedkl.training import lifecycle
from fedkl.training.callbacks import Callback, notify
from fedkl.training.directory import RunDirectory, is_served
from fedkl.training.lifecycle import Warn, run_remaining

EngineFor = Callable[[Config], Engine]


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def train(
    config: Config,
    run: str | Path,
    callbacks: Sequence[Callback] = (),
    warn: Warn = _warn,
    engine: EngineFor = local_engine,
) -> Path:
    """Train from the first round to the last, and keep all of it in a directory.

    Args:
        config: what to train, as `fedkl.preset` gives it.
        run: a directory that does not exist or is empty.
        callbacks: are told of every round.
        warn: is told of what is wrong and does not stop it.
        engine: makes what the clients are in; by default this process.

    Returns:
        The directory, for `fedkl.load`, `fedkl.records` and `fedkl.resume`.

    Raises:
        UserError: it cannot be trained; a run without a finished round leaves nothing behind.
        StalledError: too many rounds in a row changed nothing; all of them are logged and saved.
    """
    if not isinstance(config, Config):
        raise UserError(f"config must be what fedkl.preset(...) gives, not {config!r}")
    path = run_path(run)
    _check_callbacks(callbacks)
    # What cannot work is refused before anything is written.
    with (
        Federation(config, engine(config)) as federation,
        lifecycle.creating(config, path) as directory,
        notify(callbacks, directory) as watch,
    ):
        warn_of_doubts([config], warn)
        run_remaining(directory, watch, warn, federation)
    return directory.path


def resume(
    run: str | Path,
    callbacks: Sequence[Callback] = (),
    *,
    until: int | None = None,
    rounds: int | None = None,
    accept_changes: bool = False,
    engine: EngineFor = local_engine,
) -> Path:
    """Resume a run from its last checkpoint; a finished one is left as it is.

    Args:
        run: the run's directory.
        callbacks: are told of every round from there on.
        until: the round after which to stop; None: the last.
        rounds: so many instead of those that the run was to have; to train longer, also if it is
            finished.
        accept_changes: go on although the run was made with something else, and write that down.
        engine: makes what the clients are in; by default this process.

    Returns:
        The directory.

    Raises:
        UserError: it is not a run, its clients are in a network, or another process trains it; it
            was made with something else, or names plugins that nobody has agreed to run; or it has
            more rounds already.
        StalledError: too many rounds in a row changed nothing; all of them are logged and saved.
    """
    directory = RunDirectory.open(run_path(run))
    _check_callbacks(callbacks)
    if until is not None:
        whole("until", until, 1)
    if is_served(directory.path):
        raise UserError(
            f"{directory.path} is served over a network: go on with `fedkl resume`, which waits "
            "for its clients"
        )
    longer = None if rounds is None else whole("rounds", rounds, 1)
    config = lifecycle.config_of(directory, longer)
    with (
        Federation(config, engine(config)) as federation,
        notify(callbacks, directory, config.mapping()) as watch,
    ):
        run_remaining(
            directory, watch, _warn, federation, until, accept_changes, longer is not None
        )
    return directory.path


def _check_callbacks(callbacks: Sequence[Callback]) -> None:
    kind = "what derives from fedkl.Callback"
    if not isinstance(callbacks, Sequence):
        raise UserError(f"callbacks must be a list of {kind}, not {callbacks!r}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise UserError(f"a callback must be an object of {kind}, not {callback!r}")
