"""How far quantities change with the policy, in numbers worked out by hand, and never further."""

import numpy as np
import pytest
from hypothesis import given, settings

from fedkl.tabular import Exact, Family, Step, continuity, counterexamples, families
from fedkl.tabular.distances import frobenius

some = settings(max_examples=40, deadline=None)

AT_ANY_POLICY = [
    continuity.visitation,
    continuity.action_value,
    continuity.value,
    continuity.advantage,
    continuity.agent_returns,
    continuity.weighted_heterogeneity,
    continuity.heterogeneity_level,
    continuity.largest_objective,
]
OF_A_FIXED_POLICY = [continuity.policy_advantage, continuity.objective]

STAY, LEAVE = [1.0, 0.0], [0.0, 1.0]


def leaving(probability: float) -> Step:
    """An agent that always stayed leaves its states with a probability, at gamma = 1/2.

    State 0 pays 1 for staying and leads to state 1, which pays 1 for leaving and leads to state 2,
    which always pays 1. Staying is worth 2, 0 and 2; leaving is worth 0 in state 0 and 2 in state
    1, so sigma = 2. The agent starts in state 1.
    """
    to = np.eye(3)
    transitions = [[[to[0], to[1]], [to[1], to[2]], [to[2], to[2]]]]
    rewards = [[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]
    family = Family([[0.0, 1.0, 0.0]], transitions, rewards, gamma=0.5)
    local = [1 - probability, probability]
    return Step(Exact(family, [STAY, STAY, STAY]), [[local, local, STAY]])


def opposed_bandits() -> Step:
    """Rewards 1 and -1, and the opposite, at gamma = 1/2; from one half each to 3/4 and 1/4.

    A_1 = (1, -1) becomes (1/2, -3/2), A_2 = -A_1 and M = 0 throughout, so that B_n = -A_n.
    """
    rewards = [[[1.0, -1.0]], [[-1.0, 1.0]]]
    family = Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, gamma=0.5)
    return Step(Exact(family, [[0.5, 0.5]]), [[0.75, 0.25]])


@pytest.mark.parametrize("p", [1.0, 0.5, 0.25, 1e-3])
@pytest.mark.parametrize(
    ("quantity", "slope"),
    [
        # Of a stay of 2 / (1 + p) in state 1 the rest, 2p / (1 + p), is spent in state 2.
        (continuity.visitation, 4),
        # Staying in state 1 comes to be worth 4p / (1 + p), for which one waits a step.
        (continuity.value, 4),
        (continuity.agent_returns, 4),
        (continuity.action_value, 2),
    ],
)
def test_small_changes_of_visits_and_values_are_as_large_as_allowed(quantity, slope, p):
    bound = quantity(leaving(p))
    assert -bound.left == pytest.approx(np.array([[slope * p / (1 + p)]]))
    assert bound.penalty == pytest.approx(np.array([[slope * p]]))
    assert bound.looseness == pytest.approx(np.array([[1 + p]]))


@pytest.mark.parametrize("p", [1.0, 0.5, 0.25, 1e-3])
def test_small_changes_of_advantages_are_as_large_as_allowed(p):
    """State 0 loses 4p / (1+p)^2, and leaving it wins half of the 4p / (1+p) of state 1."""
    bound = continuity.advantage(leaving(p))
    assert -bound.left == pytest.approx(np.array([[(6 * p + 2 * p**2) / (1 + p) ** 2]]))
    assert bound.penalty == pytest.approx(np.array([[6 * p]]))


def test_the_policy_advantage_of_leaving_by_hand():
    """It is 2 * 2; once one leaves every other time, 4/3 visits in which it is worth 2 - 4/3."""
    bound = continuity.policy_advantage(leaving(0.5), np.array([[LEAVE] * 3]))
    assert -bound.left == pytest.approx(np.array([[4 - 4 / 3 * 2 / 3]]))
    # (1 + 3/2) / (1/2)^2 sigma TV_max.
    assert bound.penalty == pytest.approx(np.array([[10 * 2 * 0.5]]))


def test_the_weighted_heterogeneity_of_opposed_bandits_by_hand():
    bound = continuity.weighted_heterogeneity(opposed_bandits())
    # D_n B_n = (2, -2) or its negative moves by 1 in both actions; 2 * 10 sigma TV_max.
    assert -bound.left == pytest.approx(np.full((2, 2), 1.0))
    assert bound.penalty == pytest.approx(np.full((2, 2), 2 * 20 / 4))


def test_the_level_of_opposed_bandits_by_hand():
    bound = continuity.heterogeneity_level(opposed_bandits())
    assert -bound.left == pytest.approx(np.full((2, 2), np.sqrt(2.5) - np.sqrt(2)))
    # sqrt(2 actions) / rho (40 + 4 max |B|) TV_max.
    assert bound.penalty == pytest.approx(np.full((2, 2), np.sqrt(2) / 2 * (40 + 4) / 4))


def test_the_objective_of_opposed_bandits_by_hand():
    """For always the first action; rho_1 = rho_2, so delta = 0, and c = 8 eps."""
    bound = continuity.objective(opposed_bandits(), np.array([[STAY]] * 2))
    # 2 - (2 sqrt(2) + 8) and 1 - (2 sqrt(5/2) + 12) / 2; the other agent loses what this one wins.
    first = abs((1 - (np.sqrt(10) + 12) / 2) - (2 - (2 * np.sqrt(2) + 8)))
    second = abs((-1 - (np.sqrt(10) + 12) / 2) - (-2 - (2 * np.sqrt(2) + 8)))
    assert -bound.left == pytest.approx(np.array([[first, second]] * 2))
    # AA 20, alpha + beta 4 (2 sqrt(2) + 8), their changes 2 (44 sqrt(2) + 48), that of delta 320.
    constant = 20 + 4 * (2 * np.sqrt(2) + 8) + 2 * (44 * np.sqrt(2) + 48) + 320
    assert bound.penalty == pytest.approx(np.full((2, 2), constant / 4))


@pytest.mark.parametrize("quantity", AT_ANY_POLICY)
@some
@given(step=...)
def test_nothing_changes_further_than_allowed(quantity, step: Step, rounding):
    bound = quantity(step)
    assert (bound.slack >= -1e-9 * bound.penalty - 1e3 * rounding(step.before)).all()


@pytest.mark.parametrize("quantity", OF_A_FIXED_POLICY)
@some
@given(step=...)
def test_nothing_of_a_fixed_policy_changes_further_than_allowed(quantity, step: Step, rounding):
    bound = quantity(step, step.local[::-1])
    assert (bound.slack >= -1e-9 * bound.penalty - 1e3 * rounding(step.before)).all()


@pytest.mark.parametrize("quantity", AT_ANY_POLICY)
def test_a_policy_that_stays_changes_nothing(quantity):
    family = families.random(agents=3, states=4, actions=3, gamma=0.9, seed=1)
    step = Step(Exact(family, family.uniform_policy()), family.uniform_policy())
    bound = quantity(step)
    assert bound.left.shape == bound.penalty.shape == (3, 3)
    assert (bound.penalty == 0).all()
    assert abs(bound.left).max() < 1e-12


@pytest.mark.parametrize("p", [1.0, 0.5, 0.25, 1e-6])
def test_the_level_grows_without_limit_where_a_state_is_hardly_reached(p):
    family = counterexamples.unbounded_level()
    at = Exact(family, [[1 - p, p], [0.5, 0.5]])
    # rho_1 = (2, 2p) / (1+p), rho_2 = (1, 1+2p) / (1+p), A_2 = (1, -1) in state 2, M half of that.
    np.testing.assert_allclose(at.visitation, np.array([[2, 2 * p], [1, 1 + 2 * p]]) / (1 + p))
    assert at.heterogeneity_level[0] == pytest.approx(np.sqrt(2) * (1 + 2 * p) / (4 * p))
    weighted = frobenius(at.weighted_heterogeneity)[0]
    assert weighted == pytest.approx(np.sqrt(2) * (1 + 2 * p) / (2 + 2 * p))


def test_where_a_state_is_not_reached_there_is_no_level_and_the_weighted_one_goes_on():
    family = counterexamples.unbounded_level()
    at = Exact(family, [STAY, [0.5, 0.5]])
    with pytest.raises(ValueError, match="agent 0, state 1: the policy does not get there"):
        _ = at.heterogeneity_level
    assert frobenius(at.weighted_heterogeneity)[0] == pytest.approx(np.sqrt(2) / 2)
    bound = continuity.weighted_heterogeneity(Step(at, [[0.75, 0.25], [0.5, 0.5]]))
    assert (bound.slack > 0).all()
