"""The table of claims, and what it comes to in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedkl.report.markup import Html, html, html_table, paragraph
from fedkl.report.table import NOTHING, number
from fedkl.tabular.claims import Claim
from fedkl.tabular.verification import Result

THRESHOLD = "2\N{NO-BREAK SPACE}\N{MINUS SIGN}\N{NO-BREAK SPACE}√3"

_CLASSES = {
    "holds": "holds",
    "holds but vacuous": "vacuous",
    "false": "false",
    "no counterexample found": "open",
    "not checked": "open",
    "holds, vacuity not asked": "holds",
}


def of_the_paper(claim: Claim) -> bool:
    """Whether the paper makes a claim; the others are ours, or answer a question it leaves."""
    return claim.source not in ("ours", "its converse")


def tightness(result: Result) -> tuple[float, float, float, float]:
    """The least penalty over gap, its 5 % quantile, its median and its 95 % quantile."""
    least, low, middle, high = np.quantile(result.looseness, [0.0, 0.05, 0.5, 0.95])
    return float(least), float(low), float(middle), float(high)


# The outcomes in the order of reading, of one claim and of several.
_WORDS = {
    "holds": ("holds", "hold"),
    "holds but vacuous": ("holds but is vacuous", "hold but are vacuous"),
    "false": ("is false", "are false"),
    "no counterexample found": ("is not refuted here", "are not refuted here"),
    "holds, vacuity not asked": ("holds at these gammas", "hold at these gammas"),
    "not checked": ("was not checked", "were not checked"),
}


def tally(results: Sequence[Result]) -> str:
    """How many of the claims hold, in a phrase: "7 hold and 2 are false"."""
    counts = Counter(result.outcome for result in results)
    if len(counts) == 1 and len(results) > 1:
        return f"all {_WORDS[next(iter(counts))][1]}"
    return listed([f"{counts[v]} {_WORDS[v][counts[v] > 1]}" for v in _WORDS if counts[v]])


def by_name(results: Sequence[Result]) -> str:
    """What became of each claim, by its source: "Theorem 1 holds and Corollary 1 is false"."""
    phrases = []
    for outcome, words in _WORDS.items():
        names = [result.claim.source for result in results if result.outcome == outcome]
        if names:
            phrases.append(f"{listed(names)} {words[len(names) > 1]}")
    return listed(phrases)


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence as a list: "a, b and c"."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def claims_table(results: Sequence[Result]) -> str:
    """The table and the lines that explain it."""
    rows = [
        [
            Html(f"<strong>{html(r.claim.source)}</strong><small>{html(r.claim.name)}</small>"),
            Html(f"<code>{html(r.claim.statement)}</code>"),
            f"{r.checks:,}",
            f"{r.violations:,}",
            _ratio(r.tightest),
            _ratio(r.typical),
            _verdict_cell(r),
        ]
        for r in results
    ]
    header = ["Claim", "Statement", "Checks", "Violations"]
    header += ["Penalty / gap, least", "Penalty / gap, median", "Verdict"]
    explained = (
        "A bound takes a penalty off what it would promise without one; the gap is what the "
        "penalty has to cover, so 1 means that the bound is attained and 100 that it takes off a "
        f"hundred times too much ({NOTHING}: the claim is no such bound). A vacuous bound holds, "
        f"but promises no policy any improvement where gamma ≥ {THRESHOLD}. A false claim "
        "names the smallest seed of a family that refutes it, which can be looked at alone: "
    )
    command = "<code>fedkl theory verify --families 1 --seed S</code>"
    small = paragraph(Html(html(explained) + command), "small")
    return html_table(header, rows, "claims") + small


def _ratio(value: float | None) -> str:
    """Penalty over gap; rounding leaves a bound that is attained just below 1."""
    return number(None if value is None else round(value, 6))


def _verdict_cell(result: Result) -> Html:
    words = result.outcome
    seed = "" if result.counterexample is None else f"<small>seed {result.counterexample}</small>"
    return Html(f'<span class="verdict {_CLASSES[words]}">{html(words)}</span>{seed}')
