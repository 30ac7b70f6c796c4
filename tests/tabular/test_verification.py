"""Verification counts right, finds what is false, and says where."""

import dataclasses

import numpy as np
import pytest

from fedkl.tabular import bounds
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.claims.base import Claim, Finding, inequality
from fedkl.tabular.verification import verify

BY_NAME = {claim.name: claim for claim in CLAIMS}


@pytest.fixture(scope="module")
def results():
    return {result.claim.name: result for result in verify(300)}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_gets_the_verdict_that_is_documented(results, claim):
    assert results[claim.name].verdict == claim.documented
    assert not results[claim.name].contradicts


def test_what_is_claimed_true_is_never_violated(results):
    assert [r.claim.name for r in results.values() if r.violations] == [
        claim.name for claim in CLAIMS if claim.documented == "false"
    ]


@pytest.mark.parametrize(
    "name",
    ["theorem-1", "corollary-2", "theorem-2-average", "second-order", "second-order-average"],
)
def test_two_thousand_families_make_thirty_thousand_checks(results, name):
    # Three hundred make more than their share.
    assert results[name].checks / 300 * 2000 >= 30_000


def test_the_paper_promises_nothing_where_the_second_order_does(results):
    for name in ("corollary-2", "theorem-2-average", "theorem-2"):
        assert results[name].asked > 1000
        assert results[name].promised == 0
    for name in ("second-order", "second-order-average", "second-order-exact", "anchored"):
        assert results[name].promised > 0.9 * results[name].asked


def test_tighter_forms_are_tighter(results):
    order = ["theorem-1-span", "theorem-1-rows", "theorem-1-sqrt2", "theorem-1"]
    typical = [results[name].typical for name in order]
    assert typical == sorted(typical)
    assert all(results[name].tightest > 1 - 1e-9 for name in order)
    assert results["theorem-1-span"].tightest == pytest.approx(1)


def test_half_a_penalty_is_caught():
    def check(sample):
        bound = bounds.theorem_1_span(sample.step)
        return inequality(dataclasses.replace(bound, penalty=bound.penalty / 2), sample)

    wrong = dataclasses.replace(BY_NAME["theorem-1-span"], name="wrong", check=check)
    (result,) = verify(30, claims=[wrong])
    assert result.verdict == "false"
    assert result.contradicts
    (again,) = verify(1, result.counterexample, claims=[wrong])
    assert again.violations > 0


def test_a_claim_about_nothing_has_no_verdict():
    def check(sample):
        nowhere = np.zeros(sample.at.agent_returns.shape, dtype=bool)
        return Finding(violated=~nowhere, applies=nowhere)

    (result,) = verify(3, claims=[Claim("empty", "ours", "nothing", "holds", check)])
    assert (result.checks, result.violations, result.verdict) == (0, 0, None)
    assert result.tightest is None
    assert not result.contradicts


def test_families_are_the_same_however_many_are_checked_together():
    claims = [BY_NAME["theorem-1"], BY_NAME["corollary-1"]]
    together = verify(40, seed=7, claims=claims)
    alone = [verify(1, seed=seed, claims=claims) for seed in range(7, 47)]
    for index, result in enumerate(together):
        assert result.checks == sum(one[index].checks for one in alone)
        assert result.violations == sum(one[index].violations for one in alone)
    assert together[1].counterexample == min(
        one[1].counterexample for one in alone if one[1].violations
    )


def test_progress_ends_with_all_families():
    seen = []
    verify(5, claims=[BY_NAME["trace"]], show=seen.append)
    assert seen[-1] == 5
    assert seen == sorted(seen)
