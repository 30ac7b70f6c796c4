"""Every two algorithms against each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from fedkl.report.groups import Group, judged, levels
from fedkl.report.markup import Html, collapsed, html_table
from fedkl.report.statistics import Estimate, difference, probability_of_improvement
from fedkl.report.table import minus, with_interval

_MOST = 12  # groups of a task: with more there are too many pairs to read


class Pair(NamedTuple):
    """Two algorithms on the same task, evaluated up to the same round.

    Attributes:
        first, second: their labels.
        difference: of their final returns, the first less the second.
        improvement: the probability that a run of the first ends above one of the second.
    """

    first: str
    second: str
    difference: Estimate
    improvement: Estimate

    def record(self) -> dict[str, Any]:
        """Return it for machines."""
        found: dict[str, Any] = {"first": self.first, "second": self.second}
        for name in ("difference", "improvement"):
            value: Estimate = getattr(self, name)
            found |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        return found


def pairs_of(groups: Sequence[Group]) -> list[Pair]:
    """Return every two algorithms of a task that were evaluated up to the same round."""
    evaluated = [group for group in judged(groups) if group.evaluated]
    return [
        Pair(
            first.label,
            second.label,
            difference(first.finals(), second.finals()),
            probability_of_improvement(first.finals(), second.finals()),
        )
        for own in levels(evaluated).values()
        for first, second in combinations(own[:_MOST], 2)
        if first.last_round == second.last_round
    ]


def pairs_table(pairs: Sequence[Pair]) -> Html:
    """Return a table of pairs under a title that opens it; nothing if there are none."""
    if not pairs:
        return Html("")
    rows = [
        [
            pair.first,
            pair.second,
            minus(with_interval(pair.difference)),
            minus(with_interval(pair.improvement)),
        ]
        for pair in pairs
    ]
    header = ["First", "Second", "Final return, first less second", "Probability of improvement"]
    return collapsed("Every pair of algorithms", html_table(header, rows))
