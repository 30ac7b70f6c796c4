"""What the page on theory found, in a few sentences."""

from __future__ import annotations

from collections.abc import Sequence

from fedkl.report.theory.claims import by_name, main_results, tally
from fedkl.tabular.claims import VACUOUS_FROM
from fedkl.tabular.studies import GAMMA, Studies
from fedkl.tabular.verification import Result


def answer(results: Sequence[Result], studies: Studies) -> str:
    """How the claims fared, who moves, and how far that leads."""
    main = main_results(results)
    ours = [r for r in results if r.claim.source == "ours"]
    others = [r for r in results if r not in main and r not in ours]
    paper, second = (_shares_beyond(studies, name) for name in ("paper", "second-order"))
    moved = "nobody" if max(paper) == 0 else f"up to {max(paper):.0%} of the agents"
    least = "every agent" if min(second) == 1 else f"at least {min(second):.0%} of the agents"
    reached = " and ".join(
        f"{100 * found.shares['second-order'][-1].mean():.0f} % where agents {found.setting.words}"
        for found in studies.improvements
    )
    return (
        f"Of the paper's main results, {by_name(main)}. Of {len(others)} other statements, most of "
        f"them steps of its proofs and remarks, {tally(others)}; of the {len(ours)} that we add, "
        f"{tally(ours)}. At every gamma ≥ {VACUOUS_FROM:.3f} that was tried, the paper's Algorithm "
        f"1 moves {moved}, while the second-order version, with the same guarantee, "
        f"moves {least}. Of the improvement that is possible at gamma = {GAMMA:g}, "
        f"{studies.sizes.rounds['second-order']} such rounds bring {reached}."
    )


def notes(results: Sequence[Result]) -> list[str]:
    """What does not agree with the documentation, or was too little to tell."""
    said = []
    if wrong := [r.claim.name for r in results if r.contradicts]:
        said.append(f"This contradicts docs/theory.md: {', '.join(wrong)}.")
    if spared := [r.claim.name for r in results if r.outcome == "no counterexample found"]:
        said.append(
            "False, but so few families were drawn that none of them refutes it: "
            f"{', '.join(spared)}."
        )
    return said


def _shares_beyond(studies: Studies, objective: str) -> list[float]:
    """The shares of agents that move where the paper's constants leave no step to make."""
    return [
        float(share)
        for found in studies.movements
        for share in found.shares[objective][found.gammas >= VACUOUS_FROM]
    ]
