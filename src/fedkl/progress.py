"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class RoundProgress:
    """Shows rounds as they finish. Use as a context manager."""

    def __init__(self, console: Console, rounds: int) -> None:
        """Args:
        console: where to show it.
        rounds: how many rounds there are.
        """
        self._console = console
        self._rounds = rounds
        self._start = time.monotonic()
        self._first: int | None = None
        self._bar = _columns(console)
        self._task = self._bar.add_task("round", total=rounds, now="compiling")

    def __enter__(self) -> RoundProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, record: Mapping[str, Any]) -> None:
        """The record of a finished round."""
        if self._first is None:
            self._first = record["round"] - 1
        now = describe(record)
        self._bar.update(self._task, completed=record["round"], now=now)
        if not self._console.is_terminal:
            per_round = (time.monotonic() - self._start) / (record["round"] - self._first)
            left = per_round * (self._rounds - record["round"])
            self._console.print(
                f"round {record['round']}/{self._rounds}  {now}  {left:.0f} s left",
                soft_wrap=True,
                highlight=False,
            )


@contextlib.contextmanager
def bar(console: Console, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere; yields what to call with how many are done."""
    with _columns(console) as progress:
        task = progress.add_task(label, total=total, now="")
        yield lambda done: progress.update(task, completed=done)


def _columns(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description} {task.completed}/{task.total}"),
        BarColumn(bar_width=12),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[now]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def number(value: float | None) -> str:
    """A return as the log has it, which is null for one that is not finite."""
    return "not finite" if value is None else f"{value:.2f}"


def describe(record: Mapping[str, Any]) -> str:
    """One round in a few words: return, local divergence, distance to global, what went wrong."""
    parts = []
    if record["return_mean"] is not None:
        parts.append(f"return {record['return_mean']:.2f}")
    if record["kl_local"] is not None:
        parts.append(f"kl {record['kl_local']:.4f}  distance {record['distance_global']:.3f}")
    if record["guarded"]:
        parts.append(f"guarded {record['guarded']}")
    for rejected in record["rejected"]:
        parts.append(f"client {rejected['client']} left out ({rejected['reason']})")
    if record["note"]:
        parts.append(record["note"])
    return "  ".join(parts)
