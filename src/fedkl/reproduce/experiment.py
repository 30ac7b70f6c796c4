"""What an experiment is: runs to be trained, and what is made of their logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Log = Sequence[Mapping[str, Any]]
"""The records of a run, as docs/metrics.md has them."""
Logs = Mapping[str, Mapping[int, Log]]
"""By case and seed."""


@dataclass(frozen=True)
class Case:
    """Runs that differ in their seed alone."""

    label: str
    """In figures and tables."""
    preset: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Beside those of the preset."""


class Finding(NamedTuple):
    """What came out."""

    rows: list[dict[str, Any]]
    """Of a CSV file; all have the same keys."""
    draw: Callable[[], Figure]
    """Draws the figure."""
    text: str
    """What the numbers say, in Markdown."""


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper."""

    name: str
    summary: str
    cases: Mapping[str, Case]
    """By the name that their runs have."""
    rounds: int
    """If nobody says otherwise."""
    judge: Callable[[Logs, Mapping[str, str]], Finding]
    """Given the logs, and the label of each case."""
