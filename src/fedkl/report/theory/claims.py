"""The claims: the main results, the tables of the others, and what they come to in numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedkl.report.markup import Html, collapsed, html, paragraph
from fedkl.report.mathml import typeset
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
    """Return True if the paper makes a claim; the others are ours or answer its questions."""
    return claim.source not in ("ours", "its converse")


def tightness(result: Result) -> tuple[float, float, float, float]:
    """Return the least penalty over gap, its 5 % quantile, its median and its 95 % quantile."""
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
    """Count the claims by outcome, in a phrase: "7 hold and 2 are false"."""
    counts = Counter(result.outcome for result in results)
    if len(counts) == 1 and len(results) > 1:
        return f"all {_WORDS[next(iter(counts))][1]}"
    return listed([f"{counts[v]} {_WORDS[v][counts[v] > 1]}" for v in _WORDS if counts[v]])


def by_name(results: Sequence[Result]) -> str:
    """List the outcomes of claims by source: "Theorem 1 holds and Corollary 1 is false"."""
    phrases = []
    for outcome, words in _WORDS.items():
        names = [result.claim.source for result in results if result.outcome == outcome]
        if names:
            phrases.append(f"{listed(names)} {words[len(names) > 1]}")
    return listed(phrases)


def listed(parts: Sequence[str]) -> str:
    """Join parts of a sentence as a list: "a, b and c"."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def main_results(results: Sequence[Result]) -> list[Result]:
    """Return the theorems and corollaries of the paper's text, without Corollary 3, a tool of its
    appendix."""
    return [r for r in results if re.fullmatch(r"Theorem \d|Corollary [12]", r.claim.source)]


_SYMBOLS = {
    "n, k": "agents; q_k is the weight of agent k, and sum_k q_k = 1",
    "eta": "the global return: the mean of the agents' returns eta_n, weighted by q_n",
    "pi, pi_n": "the policy that all begin with, and what agent n makes of it; Pi is its matrix",
    "rho_n(s)": "how often agent n is in state s, discounted; D_n is its diagonal matrix",
    "A_n(s,a)": "the advantage of an action for agent n; eps_n is its largest absolute value",
    "sigma_n": "the largest difference between two advantages in one state, for agent n",
    "AA_n": "the policy advantage of pi_n: sum_s rho_n(s) sum_a pi_n(a|s) A_n(s,a)",
    "M": "the gradient of eta: sum_k q_k D_k A_k",
    "B_n": "how agent n differs from the others, by Definition 1: M over rho_n, less A_n",
    "TV_s": "the total variation between pi_n and pi in state s: E[TV] adds it up, weighted "
    "by rho_n, E_bar[TV] by the mean of all rho_k, and TV_max is the largest",
    "alpha, beta, delta": "the constants of Corollary 2: alpha is 2 ||B_n||_F, beta grows with "
    "eps_k, delta with the distance between rho_k and rho_n",
    "h_n": "the bound of agent n in Algorithm 1, eq. 22; h2_n is ours, of second order",
    "K_n, H_n": "the constants of Lemmas 6 and 7, as docs/theory.md gives them",
}
"""Meanings of the letters in the statements."""


def _symbols() -> Html:
    entries = (f"<dt>{typeset(t)}</dt><dd>{typeset(said)}</dd>" for t, said in _SYMBOLS.items())
    return collapsed("What the letters mean", Html(f"<dl>{''.join(entries)}</dl>"))


def claims(results: Sequence[Result]) -> str:
    """Return the main results one by one, and the other claims in tables that unfold."""
    main = main_results(results)
    cards = "\n".join(f"<li>{_card(result)}</li>" for result in main)
    paper = [r for r in results if r not in main and r.claim.source != "ours"]
    ours = [r for r in results if r.claim.source == "ours"]
    folded = "\n".join(
        collapsed(f"{title}: {tally(found)}", _table(found))
        for title, found in (
            (f"{len(paper)} other statements, most of them steps of the paper's proofs", paper),
            (f"{len(ours)} statements of ours", ours),
        )
        if found
    )
    explained = (
        "A bound takes a penalty off what it would promise without one; the gap is what the "
        "penalty has to cover, so 1 means that the bound is attained and 100 that it takes off a "
        f"hundred times too much ({NOTHING}: the claim is no such bound). A vacuous bound holds, "
        f"but promises no policy any improvement where gamma ≥ {THRESHOLD}. A false claim "
        "names the smallest seed of a family that refutes it, which can be looked at alone: "
    )
    command = "<code>fedkl theory verify --families 1 --seed S</code>"
    small = paragraph(Html(html(explained) + command), "small")
    return f'<ul class="results">{cards}</ul>\n{_symbols()}\n{folded}\n{small}'


def _card(result: Result) -> Html:
    """Return a main result: its name and verdict, what it says, and how often that was checked."""
    checks = f"{result.checks:,} checks, {_violations(result)}"
    if result.tightest is not None:
        least, middle = _ratio(result.tightest), _ratio(result.typical)
        checks += f"; penalty over gap at least {least}, median {middle}"
    return Html(
        f"<h3>{html(result.claim.source)}</h3>{_verdict(result)}"
        f'<p class="statement">{typeset(result.claim.statement)}</p>'
        f'<p class="numbers">{html(checks)}</p>'
    )


def _violations(result: Result) -> str:
    if not result.violations:
        return "no violation"
    count = "1 violation" if result.violations == 1 else f"{result.violations:,} violations"
    seed = "" if result.counterexample is None else f", the first with seed {result.counterexample}"
    return count + seed


def _table(results: Sequence[Result]) -> Html:
    header = ["Claim", "Verdict", "Statement", "Checks", "Violations", "Penalty / gap", "Median"]
    head = "".join(f"<th>{html(cell)}</th>" for cell in header)
    rows = "\n".join(_row(result, header) for result in results)
    return Html(
        f'<div class="scroll" tabindex="0"><table class="claims"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(result: Result, header: Sequence[str]) -> str:
    """Return a row whose numbers carry their names, for screens too narrow for a table."""
    claim = result.claim
    seed = "" if result.counterexample is None else f"<small>seed {result.counterexample}</small>"
    cells = [
        f"<td><strong>{html(claim.source)}</strong><small>{html(claim.name)}</small></td>",
        f"<td>{_verdict(result)}{seed}</td>",
        f"<td>{typeset(claim.statement)}</td>",
    ]
    numbers = [f"{result.checks:,}", f"{result.violations:,}"]
    numbers += [_ratio(result.tightest), _ratio(result.typical)]
    for name, value in zip(header[3:], numbers, strict=True):
        cells.append(f'<td data-label="{html(name)}">{html(value)}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _ratio(value: float | None) -> str:
    """Penalty over gap; rounding leaves a bound that is attained just below 1."""
    return number(None if value is None else round(value, 6))


def _verdict(result: Result) -> Html:
    words = result.outcome
    return Html(f'<span class="verdict {_CLASSES[words]}">{html(words)}</span>')
