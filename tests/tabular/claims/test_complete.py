"""The list of claims has every numbered statement of the paper."""

import itertools
import re

import pytest

from fedkl.tabular.claims import CLAIMS

# In the order of the paper's source, which numbers each kind on its own: the kind, the label (two
# statements have none), and the claims that check it.
STATEMENTS = [
    ("Definition", "def:impacthete", ["definition-1-alike", "definition-1-different"]),
    ("Theorem", "thm:1", ["theorem-1"]),
    ("Corollary", "cor", ["corollary-1"]),
    ("Remark", "rem:NecessaryCondition1", []),
    ("Remark", "rem:NecessaryCondition", ["remark-2"]),
    ("Corollary", "cor:1", ["corollary-2"]),
    ("Remark", "rem:ThePenalty", []),
    ("Remark", "rem:The-IID-case", ["remark-4", "remark-4-delta"]),
    ("Theorem", "thm:monotonicity", ["theorem-2"]),
    ("Theorem", "thm:2", ["theorem-3"]),
    ("Remark", None, []),
    ("Lemma", "lem:linearity", ["linearity"]),
    ("Lemma", "lem:tvupper", ["tv-of-average"]),
    ("Lemma", "lem:kuba4", ["visitation-continuous"]),
    ("Lemma", None, ["action-value-lipschitz"]),
    ("Corollary", "cor:kuba", ["corollary-3"]),
    ("Lemma", "lem:kuba6", ["policy-advantage-continuous"]),
    ("Lemma", "lem:continuityofb", ["level-continuous"]),
    ("Lemma", "lem:continuityofh", ["objective-continuous"]),
    ("Definition", "def:stationarity", ["definition-2"]),
]
# What these say is no statement about an MDP: how to read Corollary 1, where the penalties come
# from, and how the coefficients of training adapt.
WITHOUT = ["Remark 1", "Remark 3", "Remark 5"]


def numbered() -> dict[str, list[str]]:
    """The names of the claims for each statement, under the number that LaTeX gives it."""
    counters = {kind: itertools.count(1) for kind, _, _ in STATEMENTS}
    return {f"{kind} {next(counters[kind])}": names for kind, _, names in STATEMENTS}


@pytest.mark.parametrize(("number", "names"), numbered().items())
def test_every_numbered_statement_is_checked_by_its_claims(number, names):
    assert [claim.name for claim in CLAIMS if claim.source == number] == names


def test_only_remarks_about_no_mdp_have_no_claim():
    assert [number for number, names in numbered().items() if not names] == WITHOUT


def test_no_claim_has_a_number_that_the_paper_does_not():
    sources = re.compile(r"(?:Definition|Theorem|Corollary|Remark|Lemma) \d+")
    named = {number for claim in CLAIMS for number in sources.findall(claim.source)}
    assert named <= set(numbered())


def test_names_are_unique():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
