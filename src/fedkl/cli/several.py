"""Several runs side by side, with one bar for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from fedkl import workers
from fedkl.cli import console
from fedkl.config import of_run
from fedkl.progress import bar
from fedkl.runs import RunDirectory
from fedkl.texts import counted

R_co = TypeVar("R_co", covariant=True)


class Proceeds(Protocol[R_co]):
    """Trains what is left of some runs."""

    def __call__(self, *, show: Callable[[str], None], tick: Callable[[], None]) -> R_co:
        """Args:
        show: is told in a line of every run that starts or ends.
        tick: is called a few times a second while runs go on.
        """


def with_bar(runs: Sequence[Path], go_on: Proceeds[R_co], rounds: int | None = None) -> R_co:
    """Trains what is left of some runs, and shows how far they are.

    Args:
        runs: their directories.
        go_on: trains them.
        rounds: of all runs together; None: as many as their configs say.
    """
    if rounds is None:
        configs = [of_run(RunDirectory.open(run)) for run in runs]
        rounds = sum(config.federation.rounds for config in configs)
    done = workers.RoundCounter(runs)
    with bar(console.talk, f"{counted(len(runs), 'run')}, round", rounds, lines=True) as show_done:
        return go_on(show=say, tick=lambda: show_done(done()))


def say(line: str) -> None:
    """Says in a line what goes on."""
    console.talk.print(line, soft_wrap=True)
