"""The bars of a run and of several, and the sentence in which a run ends."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from fedkl.cli import console
from fedkl.config import config, presets
from fedkl.config.config import from_mapping
from fedkl.core.errors import StalledError, UserError
from fedkl.core.text import counted
from fedkl.experiments import workers
from fedkl.experiments.progress import follow
from fedkl.io.progress import RoundProgress, is_live, number
from fedkl.training.callbacks import Callback, ProgressBar, TensorBoardSink
from fedkl.training.directory import RunDirectory
from fedkl.training.records import is_number

R = TypeVar("R")


def sinks_of(options: argparse.Namespace) -> list[Callback]:
    """List what gets metrics beside the log."""
    return [TensorBoardSink(options.run / "tensorboard")] if options.tensorboard else []


def screen_bar(
    until: int | None = None,
    shown: Callable[[RoundProgress], None] = lambda progress: None,
) -> ProgressBar:
    """Make the bar of a command, on stderr if that is a terminal."""
    return ProgressBar(console.err if is_live(console.err) else console.talk, until, shown)


def with_bar(
    runs: Sequence[Path],
    resume: Callable[[workers.Trainer], R],
    place: workers.Place | None,
    rounds: int | None = None,
) -> R:
    """Train what is left of some runs, and show how far they are.

    Args:
        runs: their directories.
        resume: trains them, by what it is given.
        place: where they are trained; None: in processes here.
        rounds: of all runs together; None: as many as their configs say.
    """
    return follow(runs, resume, place, console.talk, rounds)


def require_unstalled(runs: Sequence[Path]) -> None:
    """Check that one of several runs that have ended went on to its last round.

    Raises:
        StalledError: all gave up before.
    """
    if runs and len(_stalled(runs)) == len(runs):
        raise StalledError("every run has stalled: `note` and `rejected` of their logs say why")


def say_stalled(runs: Sequence[Path]) -> None:
    """Say which of several runs that have ended gave up before their last round."""
    if stalled := _stalled(runs):
        say(f"{len(stalled)} of {counted(len(runs), 'run')} have stalled: {', '.join(stalled)}")


def _stalled(runs: Sequence[Path]) -> list[str]:
    return [run.name for run in runs if (RunDirectory(run).summary() or {}).get("stalled")]


def say(line: str) -> None:
    """Print a line about what happens."""
    console.talk.print(line, soft_wrap=True)


def conclude(run: RunDirectory, moved: bool = True) -> None:
    """Print the result of a run.

    Args:
        run: its directory.
        moved: the command has trained a round of it.
    """
    chosen = from_mapping(run.config())
    label = f"{_trained(chosen)} {chosen.algorithm.name} seed {chosen.seed}"
    rounds = chosen.federation.rounds
    if (summary := summary_of(run)) is None:
        console.out.print(
            f"{label}: stopped after round {len(run.metrics.read())} of {rounds}; run directory "
            f"{run.path}",
            soft_wrap=True,
        )
        return
    console.out.print(
        f"{label}: return {number(summary['return_mean'])} after round {summary['rounds']} "
        f"(best {number(summary['best_return_mean'])} after round {summary['best_round']}), "
        f"{summary['seconds']:.0f} s; run directory {run.path}",
        soft_wrap=True,
    )
    if again := summary["refused_again_and_again"]:
        worst = ", ".join(
            f"client {c['client']} ({counted(c['times'], 'round')})" for c in again[:5]
        )
        console.warn(f"refused again and again: {worst}; see `rejected` in {run.metrics.path}")
    if not moved:
        console.out.print(f"{run.path} is finished; --rounds N trains longer", soft_wrap=True)


def _trained(chosen: config.Config) -> str:
    """The preset of a run, and its world if that is not the preset's own."""
    try:
        own = reduce(presets.merged, presets.layers(chosen.preset).values())
    except UserError:  # a file of the user's that is gone by now
        return chosen.preset
    world = chosen.world.name
    same = presets.table(own, "world").get("name", world) == world
    return chosen.preset if same else f"{world} from {chosen.preset}"


def summary_of(run: RunDirectory) -> dict[str, Any] | None:
    """Read the summary of a run; None if it has not come to its end.

    Raises:
        UserError: something is missing in it.
    """
    if (summary := run.summary()) is None:
        return None
    if lacking := _SUMMED.keys() - {n for n, fits in _SUMMED.items() if fits(summary.get(n))}:
        raise UserError(
            f"{run.path / 'summary.json'} is incomplete: it has no sensible {min(lacking)}; remove "
            f"it, and resuming writes it again"
        )
    return summary


_SUMMED: dict[str, Callable[[Any], bool]] = {
    "return_mean": lambda value: value is None or is_number(value),
    "best_return_mean": lambda value: value is None or is_number(value),
    "rounds": is_number,
    "best_round": is_number,
    "seconds": is_number,
    "refused_again_and_again": lambda value: (
        isinstance(value, list)
        and all(isinstance(v, dict) and {"client", "times"} <= v.keys() for v in value)
    ),
}
"""The entries that a summary must have, each with a test of its value."""
