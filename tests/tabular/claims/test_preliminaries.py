"""The claims about one agent and two policies, in numbers worked out by hand."""

import numpy as np
import pytest

from fedkl.tabular import Exact, Step, counterexamples
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.verification import verify

BY_NAME = {claim.name: claim for claim in CLAIMS}


@pytest.mark.parametrize(("share", "expected"), [(0.0, -2.0), (0.25, -1.0), (0.5, 0.0), (1.0, 2.0)])
def test_the_policy_advantage_of_a_mixture_is_the_mixture(share, expected):
    """A bandit of rewards 1 and -1 at gamma = 1/2: always the better action has 2 * 1."""
    family = counterexamples.bandit(0.5)
    at = Exact(family, family.uniform_policy())
    mixture = Step(at, [[[share, 1 - share]]])
    np.testing.assert_allclose(mixture.policy_advantage, [expected])


def test_linearity_is_asked_of_advantage_and_surrogate():
    (result,) = verify(2, family=counterexamples.corollary_1(), claims=[BY_NAME["linearity"]])
    assert (result.checks, result.violations) == (2 * 20 * 2 * 2, 0)
