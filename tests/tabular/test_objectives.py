"""The local objectives by hand, as the bounds they come from, and where the paper's is stuck."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.tabular import Exact, Family, Step, best_response, bounds, families, objectives
from fedkl.tabular.objectives import Objective

some = settings(max_examples=40, deadline=None)

PER_AGENT = {
    objectives.paper: bounds.corollary_2,
    objectives.corrected: bounds.corollary_2_corrected,
    objectives.second_order: bounds.second_order,
    objectives.second_order_exact: bounds.second_order_exact,
    objectives.anchored: bounds.anchored,
    objectives.weighted: bounds.weighted,
    objectives.anchored_corollary_2: bounds.anchored_corollary_2,
}
# From here on 4 gamma / (1-gamma)^2 >= 2, so that beta alone outweighs every advantage.
STUCK = 2 - 3**0.5


def bandit(gamma):
    """One state, R = (1, -1), the uniform policy: the best case there is for the paper's h."""
    family = Family([[1.0]], np.ones((1, 1, 2, 1)), [[[1.0, -1.0]]], gamma)
    return Exact(family, family.uniform_policy())


def with_discount(at, gamma):
    family = at.family
    return Exact(
        Family(family.initial, family.transitions, family.rewards, gamma, family.weights), at.policy
    )


def stays(objective):
    return np.array_equal(best_response(objective), objective.policy)


def test_an_objective_by_hand():
    """Two states; half of the first and a quarter of the second move to the better action."""
    h = Objective(
        policy=np.full((2, 2), 0.5),
        gain=np.array([[3.0, 1.0], [0.0, 4.0]]),
        price=np.array([0.5, 1.0]),
        linear=np.array(1.5),
        quadratic=np.array(2.0),
    )
    gained = 0.5 * 2 + 0.25 * 4
    assert h(np.array([[1.0, 0.0], [0.25, 0.75]])) == gained - 0.25 - 0.25 - 0.75 - 0.5
    assert h(h.policy) == 0


@pytest.mark.parametrize("objective", PER_AGENT)
@some
@given(step=...)
def test_an_objective_is_the_rise_that_its_bound_promises(objective, step: Step, rounding):
    promised = PER_AGENT[objective](step).right - step.before.expected_return
    h = objective(step.before)(step.local)
    np.testing.assert_allclose(h, promised, atol=rounding(step.before))


@pytest.mark.parametrize("objective", PER_AGENT)
@some
@given(at=...)
def test_an_objective_is_zero_where_one_is(objective, at: Exact):
    h = objective(at)
    np.testing.assert_array_equal(h(h.policy), 0)


@pytest.mark.parametrize("objective", PER_AGENT)
@some
@given(step=...)
def test_an_objective_is_concave(objective, step: Step, rounding):
    h, one = objective(step.before), step.local
    other = one[::-1]
    middle = h((one + other) / 2)
    size = rounding(step.before) * (1 + h.quadratic.max())
    assert (middle >= (h(one) + h(other)) / 2 - size).all()


@some
@given(...)
def test_second_order_objectives_are_one_if_all_agents_are_alike(at: Exact):
    """Without heterogeneity D_n A_n is M, and nothing is charged for it."""
    first = [array[:1] for array in (at.family.initial, at.family.transitions, at.family.rewards)]
    iid = Exact(Family(*(np.concatenate([x] * 2) for x in first), at.family.gamma), at.policy)
    own, common = objectives.second_order(iid), objectives.second_order_exact(iid)
    size = 1e-11 * (1 + abs(at.value).max() / (1 - at.family.gamma))
    np.testing.assert_allclose(own.price, 0, atol=size)
    np.testing.assert_allclose(own.gain, np.broadcast_to(common.gain, own.gain.shape), atol=size)
    np.testing.assert_allclose(own.quadratic, np.broadcast_to(common.quadratic, (2,)))


@settings(max_examples=100, deadline=None)
@given(at=..., gamma=st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.3]))
def test_an_agent_is_stationary_exactly_if_its_excess_is_not_positive(at: Exact, gamma, rounding):
    """h rises by `excess` for every unit of TV_max, until the least likely action is used up."""
    at = with_discount(at, gamma)
    h = objectives.paper(at)
    most = h(best_response(h))
    excess = np.maximum(objectives.stationarity_excess(at), 0.0)
    least = at.policy[at.policy > 0].min()
    assert (most <= excess + rounding(at)).all()
    assert (most >= least * excess - rounding(at)).all()


def test_stationarity_excess_by_hand():
    """At gamma 1/5: rho = 5/4, sigma = 2, beta = 4/5 / (4/5)^2 = 5/4, so 5/4 (2 - 5/4) = 15/16."""
    np.testing.assert_allclose(objectives.stationarity_excess(bandit(0.2)), [15 / 16])
    # An action that is never taken has nothing to give: at the best one sigma is 0.
    best = Exact(bandit(0.2).family, [[1.0, 0.0]])
    np.testing.assert_allclose(objectives.stationarity_excess(best), [0])


@settings(max_examples=100, deadline=None)
@given(at=..., gamma=st.floats(0.27, 0.999))
def test_from_gamma_0_27_on_every_policy_is_stationary_for_the_paper(at: Exact, gamma):
    at = with_discount(at, gamma)
    assert (objectives.stationarity_excess(at) <= 0).all()
    assert stays(objectives.paper(at))


@settings(max_examples=100, deadline=None)
@given(at=..., gamma=st.floats(0.51, 0.999))
def test_with_the_corrected_constant_it_is_from_one_half_on(at: Exact, gamma):
    """The same proof, with 2 gamma / (1 - gamma) >= 2."""
    assert stays(objectives.corrected(with_discount(at, gamma)))


@settings(max_examples=100, deadline=None)
@given(at=..., gamma=st.floats(0.51, 0.999))
def test_in_the_federations_states_it_is_from_one_half_on_too(at: Exact, gamma):
    """D_n A_n spans at most (2 max_k eps_k + alpha_bar_n) rho_bar."""
    assert stays(objectives.anchored_corollary_2(with_discount(at, gamma)))


@some
@given(...)
def test_own_states_are_the_federations_if_agents_differ_in_rewards_alone(at: Exact):
    def first(name, array):
        same = {"initial": -2, "transitions": -4}
        if name not in same:
            return array
        return np.broadcast_to(np.take(array, [0], axis=same[name]), array.shape)

    same = Exact(at.family.changed(first), at.policy)
    own, federation = objectives.own_states(same), objectives.anchored(same)
    np.testing.assert_allclose(own.price, federation.price)
    np.testing.assert_array_equal(own.gain, federation.gain)


def test_a_coefficient_by_hand():
    """rho = 2, A = (1, -1): a quarter moved is worth 1, of which c = 3 takes 3/2."""
    at = bandit(0.5)
    h = objectives.with_coefficient(at, np.array(3.0), at.visitation)
    np.testing.assert_allclose(h(np.array([[0.75, 0.25]])), [1 - 1.5])


@pytest.mark.parametrize("heterogeneity", ["none", "mu", "P", "R", "all"])
@pytest.mark.parametrize("concentration", [0.01, 1.0])
def test_random_families_are_stuck_too(heterogeneity, concentration, policy_of):
    rng = np.random.default_rng(0)
    sizes = {"agents": 3, "states": 5, "actions": 3, "concentration": concentration}
    gammas = np.concatenate([[STUCK], rng.uniform(STUCK, 1, 39)])
    many = Family.stack(
        [
            families.random(**sizes, gamma=gamma, seed=seed, heterogeneity=heterogeneity)
            for seed, gamma in enumerate(gammas)
        ]
    )
    assert stays(objectives.paper(Exact(many, policy_of(rng, 40, 5, 3))))


@pytest.mark.parametrize(
    ("objective", "gamma", "moves"),
    [
        (objectives.paper, 0.2679, True),
        (objectives.paper, 0.268, False),
        (objectives.corrected, 0.4999, True),
        (objectives.corrected, 0.5001, False),
        (objectives.second_order, 0.999, True),
        (objectives.second_order_exact, 0.999, True),
        (objectives.anchored, 0.999, True),
        (objectives.anchored_corollary_2, 0.4999, True),
        (objectives.anchored_corollary_2, 0.5001, False),
    ],
)
def test_the_bandit_shows_that_the_threshold_is_sharp(objective, gamma, moves):
    assert stays(objective(bandit(gamma))) is not moves


@some
@given(...)
def test_our_objectives_are_stationary_where_nothing_is_gained_at_any_price_of_curvature(at: Exact):
    """C TV^2 is of second order: whether an agent moves does not depend on it."""
    for objective in (objectives.second_order(at), objectives.second_order_exact(at)):
        costly = replace(objective, quadratic=1e3 * (1 + objective.quadratic))
        moved = (best_response(costly) != costly.policy).any(axis=(-2, -1))
        free = replace(objective, quadratic=0 * objective.quadratic)
        gained = free(best_response(free))
        assert moved[gained > 1e-6].all()
        assert (gained[~moved] <= 1e-6).all()
