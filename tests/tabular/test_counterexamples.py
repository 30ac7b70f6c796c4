"""The counterexamples do what they are there for, in numbers worked out by hand."""

from pathlib import Path

import numpy as np
import pytest

from fedkl.report.theory.tables import coefficients_table, race_table
from fedkl.tabular import (
    Exact,
    Family,
    Step,
    best_response,
    bounds,
    counterexamples,
    families,
    first_order_gap,
    objectives,
)
from fedkl.tabular.distances import frobenius
from fedkl.tabular.validation import FloatArray


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


@pytest.fixture
def apart() -> Exact:
    """Agents that stay where they start, at the uniform policy: rho = (1.5, .5) and (0, 2)."""
    family = counterexamples.own_states()
    return Exact(family, family.uniform_policy())


def best_step(at: Exact, coefficient: float, visits: FloatArray) -> tuple[list[bool], float]:
    """Where agent 1 moves, and what that does to eta."""
    h = objectives.with_coefficient(at, np.array(coefficient), visits)
    step = Step(at, best_response(h))
    return (step.tv[0] > 0).tolist(), float(step.global_return[0] - at.expected_return)


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 0.99, 1.0, 1.5, 1.99, 2.0, 3.0, 100.0])
def test_no_coefficient_in_its_own_states_lets_an_agent_help(apart, coefficient):
    """A visit is worth 1 in state 0 and 2 in state 1; M spans 3/4 in state 0, and -1 in state 1."""
    moves, rise = best_step(apart, coefficient, apart.visitation)
    assert moves == [coefficient < 1, coefficient < 2]
    np.testing.assert_allclose(rise, (0.75 * moves[0] - 1.0 * moves[1]) / 2)
    assert rise < 0 or moves == [False, False]


@pytest.mark.parametrize("coefficient", [0.0, 0.79, 0.81, 1.6, 1.99, 2.01, 100.0])
def test_in_the_federations_states_the_harmful_step_is_the_first_to_go(apart, coefficient):
    """rho_bar = (.75, 1.25): a visit of anybody is worth 1.5 / .75 and 1 / 1.25 to agent 1."""
    moves, rise = best_step(apart, coefficient, apart.federation_visitation[None])
    assert moves == [coefficient < 2, coefficient < 0.8]
    np.testing.assert_allclose(rise, (0.75 * moves[0] - 1.0 * moves[1]) / 2)


@pytest.mark.parametrize("coefficient", [0.01, 0.5, 1.0, 2.0, 10.0, 1000.0])
def test_with_kl_in_its_own_states_the_agent_harms_at_every_coefficient(apart, coefficient):
    """Moving x, a visit gains 2 A x and costs c KL = -c/2 ln(1 - 4 x^2), A = 1/2 and 1.

    So A = 2 c x / (1 - 4 x^2), whose root rises with A: it moves further in state 1.
    """
    A = np.array([0.5, 1.0])
    x = (np.sqrt(coefficient**2 + 4 * A**2) - coefficient) / (4 * A)
    local = apart.policy + x[:, None] * [1.0, -1.0]
    rise = float(Exact(apart.family, local).expected_return - apart.expected_return)
    np.testing.assert_allclose(rise, 0.75 * x[0] - x[1])
    assert rise < 0


def test_what_an_agent_does_where_it_never_is_costs_it_nothing_and_the_federation_its_return(apart):
    """Agent 2 spoils state 0: AA_2 = 0, E[TV] = 0, eta falls by 3/8, and E_bar[TV] = 3/8."""
    local = apart.policy.copy()
    local[0] = [0.0, 1.0]
    step = Step(apart, local)
    assert step.policy_advantage[1] == step.tv_expected[1] == 0
    np.testing.assert_allclose(step.global_return - apart.expected_return, -3 / 8)
    # alpha_bar = 1.6, and beta_bar = 2 eps gamma / (1-gamma) = 2.
    bound = bounds.anchored_corollary_2(step)
    np.testing.assert_allclose(bound.penalty[1], (1.6 + 2) * 3 / 8)
    np.testing.assert_allclose(bounds.anchored_theorem_1(step).penalty[1], 1.6 * 3 / 8)


def test_where_everything_has_one_state_all_look_at_the_same():
    """Why two states are the fewest: rho is the horizon, whoever it is."""
    family = counterexamples.stuck()
    at = Exact(family, family.uniform_policy())
    np.testing.assert_allclose(at.visitation, np.broadcast_to(at.federation_visitation, (2, 1)))


@pytest.mark.parametrize("sizes", [(2, 2), (4, 2), (2, 4), (3, 7), (1, 3)])
def test_unvisited_agents_have_a_state_where_they_never_are(sizes):
    agents, states = sizes
    drawn = families.random(agents=agents, states=states, actions=3, gamma=0.9, seed=1)
    family = counterexamples.unvisited(drawn)
    at = Exact(family, family.uniform_policy())
    for agent in range(agents):
        assert at.visitation[agent, agent % states] == 0
        others = np.delete(at.visitation[agent], agent % states)
        assert (others > 0).all()
    np.testing.assert_allclose(at.visitation.sum(axis=-1), 10)
    np.testing.assert_allclose(family.transitions.sum(axis=-1), 1)
    np.testing.assert_array_equal(family.rewards, drawn.rewards)


PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")


def test_the_table_of_the_page_is_what_its_command_prints():
    assert coefficients_table() in PAGE


@pytest.mark.slow
def test_the_races_of_the_page_are_what_its_command_prints():
    assert race_table() in PAGE


@pytest.mark.parametrize("coefficient", [0.0, 1.0, 1e6])
def test_no_coefficient_of_weighted_divergence_alone_keeps_an_agent_from_harm(coefficient):
    """Agent 1 gains 2 by visiting its better action always, agent 2 loses 4: eta falls by 1."""
    family = counterexamples.opposed()
    at = Exact(family, family.uniform_policy())
    assert (at.excess_visitation == 0).all()
    h = objectives.with_coefficient(at, np.array(coefficient), at.excess_visitation)
    step = Step(at, best_response(h))
    np.testing.assert_allclose(step.policy_advantage[0], 2)
    np.testing.assert_allclose(step.global_return[0] - at.expected_return, -1)


def test_agents_with_the_same_visits_differ_in_rewards_alone():
    family = families.random(agents=3, states=4, actions=2, gamma=0.9, seed=0)
    same = counterexamples.same_visits(family)
    at = Exact(same, same.uniform_policy())
    assert (at.visitation == at.visitation[:1]).all()
    np.testing.assert_array_equal(same.rewards, family.rewards)
