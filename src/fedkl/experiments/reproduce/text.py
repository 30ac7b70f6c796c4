"""Numbers, tables and findings as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from fedkl.experiments.reproduce.experiment import Experiment, ExperimentResult
from fedkl.report.statistics import Estimate


def interval_text(estimate: Estimate, digits: int = 3) -> str:
    """A number with its interval, if it has one.

    Example:
        >>> interval_text(Estimate(0.5, 0.25, 1.0), 2)
        '0.5 [0.25, 1]'
    """
    value = f"{estimate.value:.{digits}g}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{estimate.low:.{digits}g}, {estimate.high:.{digits}g}]"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table.

    Example:
        >>> print(table(["a", "b"], [["1", "2"]]))
        | a | b |
        |---|---|
        | 1 | 2 |
    """
    lines = [head, *rows]
    first, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, "|" + "---|" * len(head), *rest])


def finding_text(experiment: Experiment, finding: ExperimentResult) -> str:
    """An experiment's verdicts, and what they rest on."""
    lines = [
        f"**{experiment.claims[one.claim]}** {one.verdict.capitalize()}: {one.measured}\n"
        for one in finding.verdicts
    ]
    return "\n".join([*lines, finding.text])


def as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows that have the same keys as CSV; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: "" if value is None else value for key, value in row.items()} for row in rows
    )
    return text.getvalue().encode()
