"""Several runs side by side, with one bar for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fedkl.cli import console
from fedkl.core.text import counted
from fedkl.experiments import workers
from fedkl.io.progress import bar
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run

R = TypeVar("R")


def with_bar(
    runs: Sequence[Path],
    go_on: Callable[[workers.Trainer], R],
    place: workers.Place | None,
    rounds: int | None = None,
) -> R:
    """Trains what is left of some runs, and shows how far they are.

    Args:
        runs: their directories.
        go_on: goes on with them, by what it is given.
        place: where they are trained; None: in processes here.
        rounds: of all runs together; None: as many as their configs say.
    """
    if rounds is None:
        configs = [of_run(RunDirectory.open(run)) for run in runs]
        rounds = sum(config.federation.rounds for config in configs)
    done = workers.RoundCounter(runs)
    with bar(console.talk, f"{counted(len(runs), 'run')}, round", rounds, lines=True) as show_done:
        return go_on(workers.Trainer(say, lambda: show_done(done()), place))


def say(line: str) -> None:
    """Says in a line what goes on."""
    console.talk.print(line, soft_wrap=True)
