"""One round of each algorithm: what it promises, that it keeps it, and how fast that must lead."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.tabular import (
    Exact,
    Family,
    best_response,
    constants,
    counterexamples,
    families,
    objectives,
)
from fedkl.tabular.algorithms import (
    anchored,
    common_radius,
    line_search,
    own_states,
    paper,
    second_order,
    second_order_exact,
)
from fedkl.tabular.best_response import Moves

some = settings(max_examples=40, deadline=None)
GUARANTEED = [paper, second_order, second_order_exact, anchored, common_radius, line_search]
NUMBERS = st.lists(st.integers(0, 3), min_size=3, max_size=3)


def weights_of(at, numbers):
    """Any weights of the server, 0 for agents that take no part."""
    w = np.array(numbers[: at.family.agents], dtype=float)
    w[0] += w.sum() == 0
    return w / w.sum()


def with_discount(at, gamma):
    family = at.family
    return Exact(
        Family(family.initial, family.transitions, family.rewards, gamma, family.weights), at.policy
    )


def gap(objective):
    """The Frank-Wolfe gap: what would be gained if distance cost nothing."""
    return Moves.of(objective).gain(np.ones(objective.linear.shape))


def bandit(policy, gamma):
    family = Family([[1.0]], np.ones((1, 1, 2, 1)), [[[1.0, -1.0]]], gamma)
    return Exact(family, [policy])


@pytest.mark.parametrize("algorithm", GUARANTEED)
@some
@given(at=..., numbers=NUMBERS)
def test_a_round_promises_no_loss_and_keeps_its_promise(algorithm, at: Exact, numbers, rounding):
    """With any weights; this is Theorem 2, and its counterpart for our versions."""
    result = algorithm(at, weights_of(at, numbers))
    assert result.guarantee >= -rounding(at)
    rise = Exact(at.family, result.policy).expected_return - at.expected_return
    assert rise >= result.guarantee - rounding(at)


@settings(max_examples=100, deadline=None)
@given(at=..., numbers=NUMBERS, gamma=st.sampled_from([0.01, 0.05, 0.1, 0.2]))
def test_the_papers_round_keeps_its_promise_where_it_moves(at: Exact, numbers, gamma, rounding):
    at = with_discount(at, gamma)
    result = paper(at, weights_of(at, numbers))
    rise = Exact(at.family, result.policy).expected_return - at.expected_return
    assert rise + rounding(at) >= result.guarantee >= 0
    excess = objectives.stationarity_excess(at)
    clear = abs(excess) > rounding(at)
    np.testing.assert_array_equal(result.moved[clear], excess[clear] > 0)


@pytest.mark.parametrize(
    ("algorithm", "version"),
    [
        (paper, objectives.paper),
        (second_order, objectives.second_order),
        (anchored, objectives.anchored),
        (own_states, objectives.own_states),
    ],
)
@some
@given(at=..., gamma=st.sampled_from([0.05, 0.2]))
def test_an_agent_of_weight_zero_takes_no_part(algorithm, version, at: Exact, gamma):
    """The first agent alone: the global policy becomes its local one."""
    at = with_discount(at, gamma)
    result = algorithm(at, np.eye(at.family.agents)[0])
    np.testing.assert_allclose(result.policy, best_response(version(at))[0], atol=1e-15)


@pytest.mark.parametrize("algorithm", [second_order_exact, line_search])
@some
@given(at=...)
def test_a_step_along_the_global_advantage_does_not_depend_on_the_weights(algorithm, at: Exact):
    one, other = (algorithm(at, w) for w in (at.family.weights, np.eye(at.family.agents)[0]))
    np.testing.assert_array_equal(one.policy, other.policy)


def test_a_bandits_rounds_by_hand():
    """gamma 1/5, R = (1, -1), uniform: rho = 5/4, gain of a unit 5/2, of which beta takes 25/16.

    So the paper's agent moves all it has, 1/2. C = 2/5 2 / (4/5)^2 = 5/4: ours moves 1/2 too.
    """
    at, w = bandit([0.5, 0.5], 0.2), np.ones(1)
    for algorithm, guarantee in ((paper, (5 / 2 - 25 / 16) / 2), (second_order, 5 / 4 - 5 / 16)):
        result = algorithm(at, w)
        np.testing.assert_allclose(result.policy, [[1, 0]])
        np.testing.assert_allclose(result.guarantee, guarantee)
        assert result.moved.tolist() == [True]
    # At 9/10 C = 360 and the gain of a unit is 20: the paper stays, ours moves 20 / 720.
    at = bandit([0.5, 0.5], 0.9)
    stays, moves = paper(at, w), second_order_exact(at, w)
    np.testing.assert_array_equal(stays.policy, at.policy)
    assert (stays.guarantee, stays.moved.tolist()) == (0, [False])
    np.testing.assert_allclose(moves.policy, [[0.5 + 1 / 36, 0.5 - 1 / 36]])
    np.testing.assert_allclose(moves.guarantee, 20 / 36 - 360 / 36**2)
    np.testing.assert_allclose(line_search(at, w).policy, [[1, 0]])
    # Of the radii 2^(-k/2) that the server tries, 1/32 is the best for 20 tau - 360 tau^2.
    common = common_radius(at, w)
    np.testing.assert_allclose(common.policy, [[0.5 + 1 / 32, 0.5 - 1 / 32]])
    np.testing.assert_allclose(common.guarantee, 20 / 32 - 360 / 32**2)


def test_whose_states_are_looked_at_decides_where_a_round_goes():
    """Two agents that stay where they are, rho = (1.5, .5) and (0, 2), rho_bar = (.75, 1.25).

    C = 7, and both have alpha_bar = 1.6. In the federation's states agent 1 pays 1.2 for a gain of
    1.5 in state 0 (and 2 for 1 in state 1), so it moves .3 / 14 there; agent 2 pays 2 for 3 in
    state 1 and moves 1 / 14. In its own states agent 1 pays 2.4 in state 0 and stays, and .8 in
    state 1, where it moves .2 / 14 the wrong way; agent 2 would pay 3.2 and stays.
    """
    family = counterexamples.own_states()
    at = Exact(family, family.uniform_policy())
    np.testing.assert_allclose(constants.curvature(at), 7)
    np.testing.assert_allclose(constants.anchored_alpha(at), [1.6, 1.6])
    looks_around = anchored(at, family.weights)
    half = np.array([0.3 / 28, 1 / 28])
    np.testing.assert_allclose(looks_around.policy[:, 0], [0.5 + half[0], 0.5 - half[1]])
    np.testing.assert_allclose(looks_around.guarantee, (0.3**2 / 28 + 1 / 28) / 2)
    assert looks_around.moved.tolist() == [True, True]
    looks_at_itself = own_states(at, family.weights)
    np.testing.assert_allclose(looks_at_itself.policy[:, 0], [0.5, 0.5 + 0.1 / 14])
    assert looks_at_itself.guarantee is None
    assert looks_at_itself.moved.tolist() == [True, False]


def test_the_common_radius_is_chosen_by_the_sharper_lemma():
    """So a single agent is promised no less, but for the best radius lying between two tries."""
    for seed in range(20):
        family = families.random(agents=1, states=4, actions=3, gamma=0.9, seed=seed)
        at = Exact(family, family.uniform_policy())
        own, common = (a(at, family.weights) for a in (second_order, common_radius))
        assert common.guarantee >= 0.9 * own.guarantee > 0


@pytest.mark.parametrize("version", [objectives.second_order, objectives.second_order_exact])
@settings(max_examples=100, deadline=None)
@given(at=...)
def test_second_order_gains_at_least_the_squared_gap(version, at: Exact):
    """max h >= g^2 / (4 C) where g <= 2 C, and >= g / 2 elsewhere; for gamma >= 1/5 g <= 2 C."""
    h = version(at)
    g, C = gap(h), h.quadratic
    moves = Moves.of(h)
    most = h(moves.policy(moves.best_radius(h.linear, h.quadratic)))
    size = 1e-11 * (1 + abs(h.gain).max())
    assert (most >= np.where(g <= 2 * C, g**2 / np.where(C > 0, 4 * C, 1), g / 2) - size).all()
    if at.family.gamma >= 0.2:
        assert (g <= 2 * C + size).all()


def test_below_gamma_one_fifth_the_rate_may_fail():
    """All on the bad action at gamma 1/10: g = 2 / 0.9, C = 0.4 / 0.81 and the best step is 1."""
    at = bandit([0.0, 1.0], 0.1)
    g, C = float(gap(objectives.second_order(at))[0]), float(constants.curvature(at))
    result = second_order(at, np.ones(1))
    assert result.guarantee == pytest.approx(g - C)
    assert g - C < g**2 / (4 * C)
    highest = bandit([1.0, 0.0], 0.1).expected_return
    assert g**2 > 4 * C * (highest - at.expected_return)  # the rate, after one round


@pytest.mark.parametrize("gamma", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(
    ("algorithm", "version"),
    [
        (second_order, objectives.second_order),
        (second_order_exact, objectives.second_order_exact),
    ],
)
def test_the_smallest_gap_falls_as_the_rate_says(algorithm, version, gamma):
    """min_{t < T} of the averaged g^2 is at most 4 max_t C (eta_max - eta_0) / T, for every T."""
    rng = np.random.default_rng(0)
    sizes = {"agents": 3, "states": 4, "actions": 3, "gamma": gamma}
    many = Family.stack([families.random(**sizes, seed=seed) for seed in range(5)])
    w = rng.dirichlet(np.ones(3), 5)
    at = Exact(many, many.uniform_policy())
    start, squares, limits = at.expected_return, [], []
    largest = np.zeros(5)
    for T in range(1, 101):
        g = gap(version(at))
        squares.append((w * g**2).sum(axis=-1) if algorithm is second_order else g[:, 0] ** 2)
        largest = np.maximum(largest, constants.curvature(at))
        at = Exact(many, algorithm(at, w).policy)
        # What has been gained so far is less than eta_max - eta_0.
        limits.append(4 * largest * (at.expected_return - start) / T)
    assert (np.minimum.accumulate(squares) <= np.array(limits) * (1 + 1e-9)).all()


@some
@given(at=...)
def test_the_exact_version_stays_only_where_the_kkt_conditions_hold(at: Exact, rounding):
    """Every action that is taken must have the largest M of its state."""
    M = at.global_advantage
    short = (at.policy * (M.max(axis=-1, keepdims=True) - M)).sum()
    moved = bool(second_order_exact(at, at.family.weights).moved.any())
    assert moved or short <= rounding(at)
    assert short > 0 or not moved


@pytest.mark.parametrize("algorithm", GUARANTEED)
def test_a_batch_gives_what_each_family_gives_alone(algorithm):
    gammas = [0.05, 0.1, 0.5, 0.9]
    sizes = {"agents": 3, "states": 4, "actions": 3}
    many = [families.random(**sizes, gamma=g, seed=i, level=0.2) for i, g in enumerate(gammas)]
    rng = np.random.default_rng(0)
    policies, w = rng.dirichlet(np.ones(3), (4, 4)), rng.dirichlet(np.ones(3), 4)
    together = algorithm(Exact(Family.stack(many), policies), w)
    for i, family in enumerate(many):
        alone = algorithm(Exact(family, policies[i]), w[i])
        np.testing.assert_allclose(together.policy[i], alone.policy, atol=1e-12)
        np.testing.assert_allclose(together.guarantee[i], alone.guarantee, atol=1e-12)
        np.testing.assert_array_equal(together.moved[i], alone.moved)
