"""The claims about the global objective on families so small that a hand can check them."""

import numpy as np
import pytest

from fedkl.tabular import Exact, Family, constants, counterexamples, objectives
from fedkl.tabular.claims import CLAIMS
from fedkl.tabular.verification import verify

BY_NAME = {claim.name: claim for claim in CLAIMS}


def test_where_nothing_is_rewarded_every_policy_has_the_largest_objective():
    """One agent, one state and two actions: fewer leave nothing to choose."""
    family = counterexamples.without_rewards(counterexamples.bandit(0.5))
    h = objectives.paper(Exact(family, [[0.5, 0.5]]))
    for other in ([0.5, 0.5], [1.0, 0.0], [0.25, 0.75]):
        assert h(np.array([[other]])) == 0
    (result,) = verify(1, family=family, claims=[BY_NAME["definition-2"]])
    assert result.violations == result.checks > 0


@pytest.mark.parametrize("gamma", [0.2, 0.3])
def test_where_something_is_the_bandit_has_one_best_policy(gamma):
    """h is (2 - kappa) TV / (1-gamma) towards the better action and less towards the other."""
    h = objectives.paper(Exact(counterexamples.bandit(gamma), [[0.5, 0.5]]))
    kappa = 4 * gamma / (1 - gamma) ** 2
    assert h(np.array([[[1.0, 0.0]]])) == pytest.approx((2 - kappa) / 2 / (1 - gamma))
    assert h(np.array([[[0.0, 1.0]]])) == pytest.approx((-2 - kappa) / 2 / (1 - gamma))
    assert (2 - kappa > 0) == (gamma < 0.268)


def test_agents_that_are_alike_pay_beta_alone():
    """Two bandits of rewards 1 and -1 at gamma = 1/2: eps = 1, and c = 4 / 2 * 4."""
    rewards = [[[1.0, -1.0]]] * 2
    family = Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, 0.5, weights=[0.25, 0.75])
    at = Exact(family, family.uniform_policy())
    c = constants.paper_constant(at)
    np.testing.assert_allclose(c, 8)
    assert constants.beta(at, c) == pytest.approx(8)
    assert (constants.alpha(at) == 0).all()
    assert (constants.delta(at, c) == 0).all()
    claims = [BY_NAME["remark-4"], BY_NAME["remark-4-delta"]]
    holds, fails = verify(1, family=family, claims=claims)
    assert (holds.checks, holds.violations) == (40, 0)
    assert fails.violations == fails.checks > 0


def test_agents_that_differ_in_where_they_start_do_have_a_delta():
    """The remark is about agents that are alike; here rho_1 - rho_2 = (2, -2), and c = 8."""
    stay = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    family = Family(np.eye(2), stay, [[[1.0, -1.0]] * 2] * 2, gamma=0.5)
    at = Exact(family, family.uniform_policy())
    # 2 * (1/2) * 8 * TV(rho_1, rho_2), the other half being of an agent with itself.
    np.testing.assert_allclose(constants.delta(at, constants.paper_constant(at)), 2 * 0.5 * 8 * 2)
