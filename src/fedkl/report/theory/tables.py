"""The tables of docs/theory.md, as Markdown."""

from __future__ import annotations

import numpy as np

from fedkl.tabular import (
    Exact,
    Family,
    Step,
    best_response,
    counterexamples,
    families,
    iterate,
    objectives,
    optimum,
)
from fedkl.tabular.verification import Result, verify

_COEFFICIENTS = (0.5, 0.9, 1.6, 2.5)
_RACED, _ROUNDS = 20, 1000


def _row(result: Result) -> str:
    """Return a claim and what was found, as a line of the table."""
    claim = result.claim
    tight = "" if result.tightest is None else f"{result.tightest:.2f} / {result.typical:.1f}"
    seed = "" if result.counterexample is None else f" (seed {result.counterexample})"
    cells = [f"`{claim.name}`", claim.source, f"{result.checks:,}", f"{result.violations:,}"]
    return _line(*cells, tight, f"{result.verdict}{seed}")


def claims_table(families: int, seed: int) -> str:
    """Return the table of claims, checked on so many random families."""
    header = _line("claim", "source", "checks", "violations", "penalty / gap", "verdict")
    return "\n".join([header, "|---" * 6 + "|", *map(_row, verify(families, seed))])


def coefficients_table() -> str:
    """Return what agent 1 of the counterexample does at every coefficient, and what that does to
    eta."""
    family = counterexamples.own_states()
    at = Exact(family, family.uniform_policy())
    lines = [
        _line("$c$", "own states: moves in", "$\\eta$", "the federation's: moves in", "$\\eta$"),
        "|---" * 5 + "|",
    ]
    for coefficient in _COEFFICIENTS:
        cells = [f"{coefficient:g}"]
        for visits in (at.visitation, at.federation_visitation[None]):
            objective = objectives.with_coefficient(at, np.array(coefficient), visits)
            step = Step(at, best_response(objective))
            moved = [f"{state + 1}" for state in np.flatnonzero(step.tv[0])]
            rise = float(step.global_return[0] - at.expected_return)
            cells += [" and ".join(moved) or "none", f"{rise:+.3f}" if moved else "0"]
        lines.append(_line(*cells))
    return "\n".join(lines)


def race_table() -> str:
    """Return how far the algorithms get that differ in whose states they look at."""
    lines = [
        _line("algorithm", "the example", "$\\mu$ differs", "$P$ differs", "$P, R, \\mu$ differ"),
        "|---" * 5 + "|",
    ]
    fields = [counterexamples.own_states()[None], _drawn("mu"), _drawn("P"), _drawn("all")]
    optima = [optimum.search(field) for field in fields]
    for name in ("second-order", "anchored", "own-states"):
        cells = [f"`{name}`"]
        for field, best in zip(fields, optima, strict=True):
            path = iterate(field, name, _ROUNDS)
            share = best.share(path.returns[0], path.returns[-1])
            lost = "" if path.monotone else ", lost"
            cells.append(f"{share.mean():.3f} ({share.min():.3f}){lost}")
        lines.append(_line(*cells))
    return "\n".join(lines)


def _drawn(heterogeneity: families.Heterogeneity) -> Family:
    """Draw nearly deterministic families, in which agents are in different places for long."""
    return Family.stack(
        [
            families.random(
                agents=5,
                states=10,
                actions=4,
                gamma=0.9,
                seed=seed,
                heterogeneity=heterogeneity,
                concentration=0.05,
            )
            for seed in range(_RACED)
        ]
    )


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
