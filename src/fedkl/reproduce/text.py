"""Numbers and tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

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
