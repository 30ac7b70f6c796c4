"""Training from Python as the commands do it, with a run directory and callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedkl.config.checks import warn_of_doubts
from fedkl.config.config import Config, preset
from fedkl.core.arguments import file_path, run_path, whole
from fedkl.core.errors import UserError
from fedkl.engines import Engine
from fedkl.io.progress import is_live
from fedkl.server.loop import Federation
from fedkl.server.setup import local_engine
from fedkl.training import evaluation, lifecycle, plugin_consent
from fedkl.training.callbacks import Callback, ProgressBar, notify
from fedkl.training.directory import RunDirectory, is_served
from fedkl.training.lifecycle import Warn, run_remaining

EngineFor = Callable[[Config], Engine]


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def train(
    config: str | Path | Config,
    run: str | Path,
    callbacks: Sequence[Callback] = (),
    warn: Warn = _warn,
    engine: EngineFor = local_engine,
    progress: bool | None = None,
) -> Path:
    """Train from the first round to the last, and keep all of it in a directory.

    Args:
        config: a preset, a file that ends in .toml, or a config, as `fedkl.preset` gives it.
        run: a directory that does not exist or is empty.
        callbacks: are notified of every round.
        warn: is notified of what is wrong and does not stop it.
        engine: makes what the clients are in; by default this process.
        progress: show the rounds on stderr, as a bar or as lines; None: if that is a terminal.

    Returns:
        The directory, for `fedkl.load`, `fedkl.records` and `fedkl.resume`.

    Raises:
        UserError: it cannot be trained; a run without a finished round leaves nothing behind.
        StalledError: too many rounds in a row changed nothing; all of them are logged and saved.
    """
    if isinstance(config, str | Path):
        config = preset(config)
    if not isinstance(config, Config):
        raise UserError(
            f"config must be a preset, a file or what fedkl.preset(...) gives, not {config!r}"
        )
    path = run_path(run)
    _check_callbacks(callbacks)
    callbacks = [*_bar(progress), *callbacks]
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
    trust_plugins: bool = False,
    engine: EngineFor = local_engine,
    progress: bool | None = None,
) -> Path:
    """Resume a run from its last checkpoint; a finished one is left as it is.

    Args:
        run: the run's directory.
        callbacks: are notified of every round from there on.
        until: the round after which to stop; None: the last.
        rounds: so many instead of those that the run was to have; to train longer, also if it is
            finished.
        accept_changes: go on although the run was made with something else, and write that down.
        trust_plugins: agree to run the plugins of a run that another user made, which are code.
        engine: makes what the clients are in; by default this process.
        progress: as of `train`.

    Returns:
        The directory.

    Raises:
        UserError: it is not a run, its clients are in a network, or another process trains it; it
            was made with something else, or names plugins without consent to run them; or it has
            more rounds already.
        StalledError: too many rounds in a row changed nothing; all of them are logged and saved.
    """
    directory = _opened(run, trust_plugins)
    _check_callbacks(callbacks)
    callbacks = [*_bar(progress, until), *callbacks]
    if until is not None:
        whole("until", until, 1)
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


def evaluate(
    run: str | Path,
    episodes: int = 100,
    *,
    deterministic: bool = False,
    video: str | Path | None = None,
    client: int | None = None,
    clients: int | None = None,
    best: bool = False,
    accept_changes: bool = False,
    trust_plugins: bool = False,
    warn: Warn = _warn,
    engine: EngineFor = local_engine,
) -> dict[str, Any]:
    """Evaluate a run's global policy on all clients, as `fedkl evaluate` does; changes nothing.

    Args:
        run: the run's directory; it may still be training.
        episodes: for each client.
        deterministic: take the mode of the policy instead of a sample.
        video: film an episode too, as FILE.mp4 or FILE.gif; None: no film.
        client: whose world is filmed; None: that of client 0.
        clients: film so many side by side; None: one.
        best: of the round with the highest mean return, which a run keeps if
            `checkpoint.keep_best` is on, not of the last.
        accept_changes: also if config, plugins or worlds are not those the run was made with.
        trust_plugins: agree to run the plugins of a run that another user made, which are code.
        warn: is notified of what is wrong and does not stop it.
        engine: makes what the clients are in; by default this process.

    Returns:
        What `fedkl evaluate --json` prints: `round`, `episodes`, `deterministic`, `return_mean`,
        `return_min`, `return_std`, `return_per_client` (NaN for a client that gave none), and
        `video` if there is one.

    Raises:
        UserError: as of `resume`; or there is nothing to evaluate or to film.
    """
    directory = _opened(run, trust_plugins)
    film = None if video is None else file_path(video)
    wanted = evaluation.Wanted(film, client, clients, deterministic)
    config = plugin_consent.of_run(directory)
    with Federation(config, engine(config)) as federation:
        lifecycle.load(directory, warn, federation, best=best, accept=accept_changes)
        return evaluation.evaluate(
            federation, directory.path, whole("episodes", episodes, 1), wanted, warn
        )


def _opened(run: str | Path, trust_plugins: bool) -> RunDirectory:
    """Open a run whose clients can be in this process."""
    directory = RunDirectory.open(run_path(run))
    if trust_plugins:
        plugin_consent.agree(directory.path)
    if is_served(directory.path):
        raise UserError(
            f"{directory.path} is served over a network: use the commands `fedkl resume` and "
            "`fedkl evaluate`, which wait for its clients"
        )
    return directory


def _bar(progress: bool | None, until: int | None = None) -> list[Callback]:
    """List the bar that shows a run, if it is to be shown."""
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    shown = is_live(console) if progress is None else progress
    return [ProgressBar(console, until)] if shown else []


def _check_callbacks(callbacks: Sequence[Callback]) -> None:
    kind = "what derives from fedkl.Callback"
    if not isinstance(callbacks, Sequence):
        raise UserError(f"callbacks must be a list of {kind}, not {callbacks!r}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise UserError(f"a callback must be an object of {kind}, not {callback!r}")
