"""The progress of a run, for a person: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from fedkl.core.text import digits, printable

COMPILING = "compiling"
_GAP = "  "
"""Between the parts of a round's line."""
_LINES = 20
"""Of many runs together, where there is no bar."""
_QUIET = 30.0
"""Seconds after which there is a line in any case, if something was finished."""


class Pace:
    """The time that the rest takes, by what followed the first: that one was compiled, too."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to count.

        Args:
            total: how many there are.
            clock: gives seconds.
        """
        self._total = total
        self._clock = clock
        self._since: tuple[int, float] | None = None

    def left(self, done: int) -> str:
        """Write the time left when so many are done; nothing while it is not known."""
        now = self._clock()
        if self._since is None:
            self._since = (done, now)
        first, start = self._since
        if done == first:
            return ""
        return f"{duration((now - start) / (done - first) * (self._total - done))} left"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    Example:
        >>> duration(3723.4)
        '1:02:03'
    """
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class RoundProgress:
    """Rounds, shown as they finish. Use as a context manager."""

    def __init__(self, console: Console, rounds: int, distance: str = "distance") -> None:
        """Make the bar.

        Args:
            console: where to show it.
            rounds: how many rounds there are.
            distance: what the distance from the global policy is called.
        """
        self._console = console
        self._rounds = rounds
        self._distance = distance
        self._pace = Pace(rounds)
        self._bar = _columns(console)
        self._task = self._bar.add_task("round", total=rounds, now=COMPILING, left="")

    def __enter__(self) -> RoundProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def say(self, now: str) -> None:
        """Show what goes on inside a round, on a terminal."""
        self._bar.update(self._task, now=printable(now))

    def show(self, record: Mapping[str, Any]) -> None:
        """Show the record of a finished round."""
        now, left = printable(describe(record, self._distance)), self._pace.left(record["round"])
        self._bar.update(self._task, completed=record["round"], now=now, left=left)
        if not is_live(self._console):
            parts = (f"round {record['round']}/{self._rounds}", now, left)
            self._console.print(
                _GAP.join(part for part in parts if part), soft_wrap=True, highlight=False
            )


@contextlib.contextmanager
def bar(
    console: Console, label: str, total: int, lines: bool = False
) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal; yield what to call with how many are done, and with what goes on.

    Args:
        console: where to show it.
        label: what is counted.
        total: how many there are.
        lines: also elsewhere: a line every few, or when there was none for a while.
    """
    pace, label, begun = Pace(total), printable(label), -1
    every, said, at = math.ceil(total / _LINES), 0, time.monotonic()
    with _columns(console) as progress:
        task = progress.add_task(label, total=total, now=COMPILING if lines else "", left="")

        def show(done: int, going_on: str = "") -> None:
            nonlocal begun, said, at
            if begun < 0:  # what goes on where it was stopped has done some already
                begun = said = done
            # Before anything more is done there is nothing to reckon with.
            left = pace.left(done) if done > begun else ""
            now = COMPILING if lines and done == begun < total else printable(going_on)
            progress.update(task, completed=done, now=now, left=left)
            due = done - said >= every or (done > said and time.monotonic() - at > _QUIET)
            if lines and due and not is_live(console):
                said, at = done, time.monotonic()
                console.print(f"{label} {done}/{total}  {left}".rstrip(), soft_wrap=True)

        yield show


def is_live(console: Console) -> bool:
    """True if what was shown can be drawn over; a dumb terminal (TERM=dumb) gets lines."""
    return console.is_interactive and not console.is_dumb_terminal


def _columns(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description} {task.completed}/{task.total}"),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[left]}"),
        _Now(),
        console=console,
        disable=not is_live(console),
        transient=True,
    )


class _Now(ProgressColumn):
    """The column of what goes on, in the room that is left: all others keep their width."""

    def render(self, task: Task) -> _WholeItems:
        return _WholeItems(task.fields["now"])


class _WholeItems:
    """As many items of a text as there is room for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(0, cell_len(self._text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, *more = self._text.split(_GAP)
        for item in more:
            if cell_len(longer := f"{shown}{_GAP}{item}") > options.max_width:
                break
            shown = longer
        yield Text(shown, no_wrap=True, overflow="ellipsis")


def number(value: float | None) -> str:
    """A return as the log has it, which is null for one that is not finite."""
    return "not finite" if value is None else digits(value)


def describe(record: Mapping[str, Any], distance: str = "distance") -> str:
    """One round in a few words: return, divergences, what went wrong.

    Args:
        record: of the round.
        distance: what the distance from the global policy is called.
    """
    parts = []
    if record["return_mean"] is not None:
        parts.append(f"return {digits(record['return_mean'])}")
    if record["kl_local"] is not None:
        parts.append(f"KL of a local step {record['kl_local']:.4f}")
        parts.append(f"{distance} from global {record['distance_global']:.3f}")
    if record["guarded"]:
        parts.append(f"guarded {record['guarded']}")
    for rejected in record["rejected"]:
        parts.append(f"client {rejected['client']} left out ({rejected['reason']})")
    for held in record.get("held_back") or ():
        parts.append(f"statistics of client {held['client']} left out ({held['reason']})")
    for broken in record.get("outliers") or ():
        parts.append(
            f"client {broken['client']} has broken readings in {broken['share']:.2%} of its steps"
        )
    if record["note"]:
        parts.append(record["note"])
    return _GAP.join(parts)
