"""The page on theory says of every claim what the code says."""

import re
from pathlib import Path

import pytest

from fedkl.report.theory.tables import claims_table
from fedkl.tabular.claims import CLAIMS

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")


TABLE = PAGE[PAGE.index("| claim | source |") :].split("\n\n")[0]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_the_table_has_every_claim_with_its_verdict(claim):
    (row,) = re.findall(rf"^\| `{claim.name}` \|(.*)\|$", TABLE, re.MULTILINE)
    source, _, violations, _, verdict = (cell.strip() for cell in row.split("|"))
    assert source == claim.source
    assert verdict.split(" (")[0] == claim.documented
    assert (violations == "0") == (claim.documented != "false")


def test_the_table_has_no_other_claims():
    assert re.findall(r"^\| `(.*?)` \|", TABLE, re.MULTILINE) == [c.name for c in CLAIMS]


STATEMENTS = re.findall(
    r"^\| ((?:Definition|Theorem|Corollary|Remark|Lemma) \d) \| .* \| (.*?) \| ?(.*?) ?\|$",
    PAGE[PAGE.index("| statement | says that |") :].split("\n\n")[0],
    re.MULTILINE,
)


@pytest.mark.parametrize(("number", "names", "verdicts"), STATEMENTS)
def test_every_statement_has_the_claims_that_check_it_and_their_verdicts(number, names, verdicts):
    checking = [claim for claim in CLAIMS if claim.source == number]
    assert re.findall("`(.*?)`", names) == [claim.name for claim in checking]
    assert verdicts == "; ".join(claim.documented for claim in checking)


def test_the_statements_are_those_that_claims_have_for_a_source_and_three_remarks():
    listed = [number for number, _, _ in STATEMENTS]
    numbered = {c.source for c in CLAIMS if re.fullmatch(r"[A-Z][a-z]+ \d", c.source)}
    assert set(listed) - numbered == {"Remark 1", "Remark 3", "Remark 5"}
    assert numbered <= set(listed)
    assert len(listed) == len(set(listed)) == 20


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope = {}
    exec(code, scope)
    assert capsys.readouterr().out
    assert (scope["tabular"].bounds.second_order(scope["step"]).slack > -1e-12).all()


@pytest.mark.slow
def test_the_table_is_what_verification_finds():
    assert claims_table(2000, 0) in PAGE
