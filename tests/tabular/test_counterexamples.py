"""The counterexamples do what they are there for, in numbers worked out by hand."""

import numpy as np
import pytest

from fedkl.tabular import (
    Exact,
    Family,
    Step,
    best_response,
    counterexamples,
    families,
    first_order_gap,
    objectives,
)
from fedkl.tabular.distances import frobenius


def test_corollary_1_has_b_twice_a_and_still_improves_everybody():
    family = counterexamples.corollary_1()
    at = Exact(family, family.uniform_policy())
    # M = (D A + 5 D A) / 2 = 3 D A, so D B_1 = 2 D A_1 and D B_2 = 3 D A_1 - 5 D A_1.
    np.testing.assert_allclose(at.heterogeneity_matrix[0], 2 * at.advantage[0])
    np.testing.assert_allclose(at.heterogeneity_matrix[1], -0.4 * at.advantage[1])
    assert at.heterogeneity_level[0] > frobenius(at.advantage)[0]
    local = at.policy * (1 + 0.1 * at.advantage[0])
    step = Step(at, np.stack([local, local]))
    assert (step.after.agent_returns[0] > at.agent_returns).all()


@pytest.mark.parametrize(("gamma", "moves"), [(0.2679, True), (0.268, False)])
def test_the_bandit_moves_up_to_two_minus_the_root_of_three(gamma, moves):
    family = counterexamples.bandit(gamma)
    at = Exact(family, family.uniform_policy())
    local = best_response(objectives.paper(at))
    assert (local != at.policy).any() == moves
    # h = (2 - 4 gamma / (1-gamma)^2) TV / (1-gamma), at most at TV = 1/2.
    expected = max(0.0, (2 - 4 * gamma / (1 - gamma) ** 2) / (1 - gamma) / 2)
    assert objectives.paper(at)(local) == pytest.approx([expected], abs=1e-12)


@pytest.mark.parametrize("gamma", [0.01, 0.9, 0.999])
def test_opposed_agents_leave_second_order_stuck_at_every_gamma(gamma):
    family = counterexamples.stuck()
    family = Family(family.initial, family.transitions, family.rewards, gamma)
    at = Exact(family, family.uniform_policy())
    # Advantages span 2 and so do heterogeneities: m + e from 1.1 to -0.9, and e from 1 to -1.
    np.testing.assert_allclose(first_order_gap(objectives.second_order(at)), 0, atol=1e-12)
    # M = m / (1-gamma): all mass on the first two actions gains 0.1 / (1-gamma).
    gap = first_order_gap(objectives.second_order_exact(at))
    np.testing.assert_allclose(gap, 0.1 / (1 - gamma))


def test_shaped_agents_differ_and_have_no_heterogeneity():
    family = counterexamples.shaped(
        families.random(agents=3, states=4, actions=2, gamma=0.9, seed=3)
    )
    assert abs(np.diff(family.rewards, axis=0)).min() > 0
    at = Exact(family, np.random.default_rng(0).dirichlet(np.ones(2), 4))
    np.testing.assert_allclose(at.heterogeneity_matrix, 0, atol=1e-12)


def test_alike_agents_are_all_the_first():
    family = families.random(agents=3, states=4, actions=2, gamma=0.9, seed=3)
    same = counterexamples.alike(family)
    for agent in range(3):
        np.testing.assert_array_equal(same.transitions[agent], family.transitions[0])
        np.testing.assert_array_equal(same.initial[agent], family.initial[0])
        np.testing.assert_array_equal(same.rewards[agent], family.rewards[0])


def test_without_rewards_every_policy_is_an_argmax():
    family = counterexamples.without_rewards(families.chain(agents=2))
    at = Exact(family, family.uniform_policy())
    objective = objectives.paper(at)
    other = np.random.default_rng(1).dirichlet(np.ones(2), (2, family.states))
    assert (objective(other) == 0).all()
