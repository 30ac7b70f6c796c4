"""Checks that once failed for reasons of their own."""

import numpy as np
import pytest

from fedkl.tabular import Family, counterexamples
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.claims.heterogeneity import _joint_improvement
from fedkl.tabular.sampling import samples
from fedkl.tabular.verification import verify

BY_NAME = {claim.name: claim for claim in CLAIMS}


@pytest.mark.parametrize("seed", [508467, 510645, 514485, 506793, 1124])
def test_rows_of_nothing_but_rounding_violate_nothing(seed):
    wrong = [r.claim.name for r in verify(1, seed) if r.violations]
    assert not [name for name in wrong if BY_NAME[name].documented != "false"]


def test_one_agent_is_a_family_too():
    one = counterexamples.bandit(0.2)
    results = {r.claim.name: r for r in verify(2, family=one)}
    assert results["definition-1-different"].checks == 0
    assert results["theorem-1"].violations == 0


@pytest.mark.parametrize("name", ["corollary-1-reversed", "potential"])
def test_a_joint_improvement_is_really_made(name):
    """Where agents oppose each other, no step helps both, and the check must not find one."""
    opposed = np.array([1.0, -1.0])
    family = Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), [[opposed], [-2 * opposed]], gamma=0.5)
    (sample,) = samples([3], family)
    # M = -D A_1 / 2: the condition fails for agent 1; did it hold, the check would refute it.
    everywhere = np.ones(sample.at.agent_returns.shape, dtype=bool)
    finding = _joint_improvement(sample, everywhere)
    assert (finding.violated[..., 0] == finding.applies[..., 0]).all()
    assert finding.applies[..., 0].any()
    assert not BY_NAME[name].check(sample).applies[..., 0].any()
