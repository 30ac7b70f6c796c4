"""What the page on theory says, and that it never says more than was found."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedkl.report.theory.claims import (
    _SYMBOLS,
    by_name,
    claims,
    main_results,
    of_the_paper,
    tally,
    tightness,
)
from fedkl.report.theory.examples import examples
from fedkl.report.theory.page import answer, method, notes
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.sampling import GAMMAS, samples
from fedkl.tabular.studies import Sizes, Studies, study
from fedkl.tabular.verification import Result, verify


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return verify(5)


@pytest.fixture(scope="module")
def studies() -> Studies:
    rounds = {"paper": 2, "second-order": 2}
    return study(Sizes(2, (0.1, 0.5, 0.9), 2, rounds, 20))


def made_up(source: str = "ours", documented: str = "holds", **found: object) -> Result:
    """A result of a claim."""
    claim = replace(CLAIMS[0], source=source, documented=documented)
    fields = {"checks": 9, "violations": 0, "counterexample": None, "promised": 0, "asked": 0}
    return Result(claim, **(fields | {"looseness": np.zeros(0)} | found))


def test_a_verdict_claims_no_more_than_was_found() -> None:
    assert made_up().outcome == "holds"
    assert made_up(checks=0).outcome == "not checked"
    assert made_up(violations=1, counterexample=7).outcome == "false"
    assert made_up(documented="holds but vacuous", asked=3).outcome == "holds but vacuous"
    assert made_up(documented="holds but vacuous").outcome == "holds, vacuity not asked"
    assert made_up(asked=3).outcome == "holds"
    assert made_up(documented="false").outcome == "no counterexample found"


def test_a_tally_is_a_phrase() -> None:
    fine, wrong = made_up(), made_up(violations=1)
    assert tally([fine, fine]) == "all hold"
    assert tally([fine]) == "1 holds"
    assert tally([fine, wrong, fine]) == "2 hold and 1 is false"
    vacuous = made_up(documented="holds but vacuous", asked=1)
    assert tally([fine, wrong, vacuous]) == "1 holds, 1 holds but is vacuous and 1 is false"


def test_claims_are_named_by_what_became_of_them() -> None:
    first, second = made_up("Theorem 1"), made_up("Theorem 2", "holds but vacuous", asked=1)
    third, fourth = made_up("Corollary 1", violations=1), made_up("Theorem 3")
    assert by_name([first, second, third, fourth]) == (
        "Theorem 1 and Theorem 3 hold, Theorem 2 holds but is vacuous and Corollary 1 is false"
    )


def test_whose_claims_they_are() -> None:
    assert of_the_paper(made_up("eq. 7").claim)
    assert not of_the_paper(made_up("ours").claim)
    assert not of_the_paper(made_up("its converse").claim)


def test_the_tightness_of_a_bound() -> None:
    ratios = np.arange(1.0, 102.0)
    assert tightness(made_up(looseness=ratios)) == (1.0, 6.0, 51.0, 96.0)


def test_the_table_names_counterexamples_and_escapes() -> None:
    hostile = made_up("<script>", violations=3, counterexample=17)
    shown = claims([hostile])
    assert "<script>" not in shown
    assert "<small>seed 17</small>" in shown
    attained = made_up(looseness=np.array([1 - 1e-12, 3.0]))
    row = claims([attained])
    assert '<td data-label="Penalty / gap">1.00</td><td data-label="Median">2.00</td>' in row
    main = made_up("Theorem 1", looseness=np.array([1 - 1e-12, 3.0]))
    card = claims([main])
    assert "9 checks, no violation; penalty over gap at least 1.00, median 2.00" in card
    assert card.count("<details") == 1  # the letters, and no other claims
    wrong = claims([made_up("Theorem 1", violations=3, counterexample=17)])
    assert "9 checks, 3 violations, the first with seed 17" in wrong


def test_the_answer_counts_what_was_found(results: list[Result], studies: Studies) -> None:
    said = answer(results, studies)
    assert said.startswith("Of the paper's main results, Theorem 1 ")
    ours = [r for r in results if r.claim.source == "ours"]
    assert f"of the {len(ours)} that we add, {tally(ours)}." in said
    assert "the paper's Algorithm 1 moves no agent" in said
    moving = replace(studies.movements[0], shares={"paper": [0, 0, 0.25], "second-order": [1] * 3})
    shares = {name: np.array(share) for name, share in moving.shares.items()}
    contrary = replace(studies, movements=(replace(moving, shares=shares),))
    assert "Algorithm 1 moves up to 25% of the agents" in answer(results, contrary)


def test_notes_own_up_to_contradictions_and_to_too_few_families() -> None:
    assert notes([made_up()]) == []
    assert notes([made_up(violations=1)]) == [
        "This contradicts docs/theory.md: performance-difference."
    ]
    (spared,) = notes([made_up(documented="false")])
    assert "none of them refutes it: performance-difference" in spared


def test_the_examples_are_counterexamples(results: list[Result]) -> None:
    found = {example.name: example for example in examples(results, 0)}
    one = found["corollary-1"].numbers
    assert one["ratio"] == pytest.approx(2)
    assert one["eta_after"] > one["eta_before"]
    assert "raises eta from 15.00 to 16.50" in found["corollary-1"].text
    bandit = found["bandit"].numbers
    assert bandit["0.2679"]["moves"]
    assert not bandit["0.268"]["moves"]
    whose = found["own-states"].numbers
    assert whose["1.6"] == pytest.approx({"own": -1 / 2, "federation": 3 / 8})
    assert all(rises["own"] <= 0 for rises in whose.values())
    assert "-0.500 and 0.375 with c = 1.6" in found["own-states"].text
    assert found["shaped-rewards"].numbers["level"] < 1e-12
    assert found["shaped-rewards"].numbers["largest_reward_difference"] > 0.1
    assert found["no-rewards"].numbers["falls_short_by"] == 0
    assert found["no-rewards"].numbers["total_variation"] > 0.1
    assert found["eq-23"].numbers["printed_bound"] > found["eq-23"].numbers["h"]
    expansion = found["frobenius-expansion"].numbers
    assert expansion["printed"] != pytest.approx(expansion["level"])


def test_examples_without_a_counterexample_are_left_out(results: list[Result]) -> None:
    none_found = [replace(result, counterexample=None) for result in results]
    names = {example.name for example in examples(none_found, 0)}
    assert names == {"corollary-1", "bandit", "own-states", "shaped-rewards", "no-rewards"}


def test_the_method_describes_the_families_that_are_drawn(studies: Studies) -> None:
    described = dict(method(1, 0, studies, {"numpy": "2"}))
    assert "1 random family" in described["Families"]
    sizes = re.findall(r"(\d) to (\d) (agents|states|actions)", described["Families"])
    drawn = [sample.at.family for sample in samples(range(60))]
    for low, high, what in sizes:
        found = {getattr(family, what) for family in drawn}
        assert (min(found), max(found)) == (int(low), int(high))
    assert {float(g) for family in drawn for g in family.gamma.ravel()} <= set(GAMMAS)
    assert described["Versions"] == "numpy 2."


def test_the_letters_of_the_main_results_are_explained() -> None:
    main = [result.claim.statement for result in main_results(verify(1))]
    said = " ".join([*_SYMBOLS, *_SYMBOLS.values()])
    letters = re.compile(r"\b(?:alpha|beta|delta|eta|eps(?=_)|[A-Za-z]{1,2}(?=_))(?![a-z])")
    used = {letter for statement in main for letter in letters.findall(statement)}
    assert {"A", "AA", "B", "q", "eta", "eps", "delta"} == used - {"alpha", "beta"} - {
        "E",
        "TV",
        "pi",
    }
    assert not {letter for letter in used if letter not in letters.findall(said)}
