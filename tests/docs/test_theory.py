"""The page on theory says of every claim what the code says."""

import re
from pathlib import Path

import pytest

from fedkl.tabular.claims import CLAIMS

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_the_table_has_every_claim_with_its_verdict(claim):
    (row,) = re.findall(rf"^\| `{claim.name}` \|(.*)\|$", PAGE, re.MULTILINE)
    source, _, violations, _, verdict = (cell.strip() for cell in row.split("|"))
    assert source == claim.source
    assert verdict.split(" (")[0] == claim.documented
    assert (violations == "0") == (claim.documented != "false")


def test_the_table_has_no_other_claims():
    table = PAGE[PAGE.index("| claim | source |") :].split("\n\n")[0]
    assert re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE) == [c.name for c in CLAIMS]


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope = {}
    exec(code, scope)
    assert capsys.readouterr().out
    assert (scope["tabular"].bounds.second_order(scope["step"]).slack > -1e-12).all()
