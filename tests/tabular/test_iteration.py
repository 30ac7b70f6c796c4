"""Many rounds: what is recorded, what is asserted in each, and how far the versions get."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.tabular import (
    Exact,
    Family,
    algorithms,
    best_response,
    counterexamples,
    families,
    objectives,
    optimum,
)
from fedkl.tabular.algorithms import Round
from fedkl.tabular.iteration import ALGORITHMS, draw_participants, iterate

GUARANTEED = [
    "paper",
    "second-order",
    "second-order-exact",
    "anchored",
    "common-radius",
    "line-search",
]
BANDIT = Family([[1.0]], np.ones((1, 1, 2, 1)), [[[1.0, -1.0]]], gamma=0.5)


@pytest.fixture(scope="module")
def reached(batch):
    """Runs an algorithm on the batch; how much of the possible improvement it has, by round."""
    best = optimum.search(batch)

    def run(algorithm, rounds):
        result = iterate(batch, algorithm, rounds)
        return result, best.share(result.returns[0], result.returns)

    return run


def towards(policy, guarantee=None):
    """An algorithm that goes to a policy at once."""

    def algorithm(at, weights, memory=None):
        return Round(np.array([policy]), guarantee, np.array([True]), memory)

    return algorithm


def test_a_trajectory_by_hand():
    """eta of the bandit is 2 (1 - 2 p), p of the bad action: from 0 to 2, and there it stays."""
    result = iterate(BANDIT, algorithms.line_search, rounds=3)
    np.testing.assert_allclose(result.returns, [0, 2, 2, 2])
    np.testing.assert_allclose(result.guarantees, [0, 0, 0])
    assert result.moved.tolist() == [1, 0, 0]
    assert result.tv_max.tolist() == [0.5, 0, 0]
    assert result.policy.tolist() == [[1, 0]]
    assert result.monotone


def test_no_rounds_are_a_trajectory_too():
    many = Family.stack([BANDIT] * 3)
    result = iterate(many, algorithms.paper, rounds=0)
    assert result.returns.shape == (1, 3)
    assert result.guarantees.shape == result.moved.shape == result.tv_max.shape == (0, 3)
    assert result.monotone


def test_it_starts_where_it_is_told():
    result = iterate(BANDIT, algorithms.paper, rounds=1, policy=[[0.25, 0.75]])
    np.testing.assert_allclose(result.returns, [-1, -1])


def test_an_algorithm_that_promises_too_much_is_caught():
    with pytest.raises(RuntimeError, match="round 0: eta rose by 2 less than guaranteed"):
        iterate(BANDIT, towards([0.5, 0.5], guarantee=np.array(2.0)), rounds=1)


def test_a_loss_without_a_promise_is_recorded():
    result = iterate(BANDIT, towards([0.0, 1.0]), rounds=2)
    np.testing.assert_allclose(result.returns, [0, -2, -2])
    assert np.isnan(result.guarantees).all()
    assert not result.monotone


def test_an_algorithm_sees_what_it_remembered():
    seen = []

    def algorithm(at, weights, memory=None):
        seen.append(memory)
        return Round(at.policy, None, np.array([False]), len(seen))

    iterate(BANDIT, algorithm, rounds=3)
    assert seen == [None, 1, 2]


def test_the_weights_of_every_round_are_asked_for():
    """Bandits of opposite rewards, M = (1, -1): what the first wants, and the second never does.

    D A_2 = (-2, 2) and D B_2 = (3, -3): a gain of 4 at a price of 6.
    """
    rewards = [[[1.0, -1.0]], [[-1.0, 1.0]]]
    family = Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, 0.5, [0.75, 0.25])
    each = [np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([0.5, 0.5])]
    result = iterate(family, algorithms.second_order, 3, weights=each.__getitem__)
    assert result.moved.tolist() == [1, 0, 0.5]
    assert (result.tv_max > 0).tolist() == [True, False, True]
    assert (np.diff(result.returns) > 0).tolist() == [True, False, True]


@settings(max_examples=30, deadline=None)
@given(at=..., numbers=st.lists(st.integers(0, 2), min_size=3, max_size=3))
@pytest.mark.parametrize("name", GUARANTEED)
def test_is_monotone_with_any_agents_in_any_round(name, at: Exact, numbers):
    """Guarantees are asserted by `iterate` itself; they are not negative beyond rounding."""
    N = at.family.agents

    def weights(index):
        w = np.roll(np.array(numbers, dtype=float), index)[:N]
        w[index % N] += w.sum() == 0
        return w / w.sum()

    result = iterate(at.family, ALGORITHMS[name], 6, at.policy, weights)
    assert result.monotone
    assert (result.guarantees >= -1e-11 * (1 + abs(at.value).max())).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_batch_gives_what_each_family_gives_alone(name, batch):
    together = iterate(batch, ALGORITHMS[name], 4)
    for i in range(2):
        alone = iterate(batch[i], ALGORITHMS[name], 4)
        np.testing.assert_allclose(together.policy[i], alone.policy, atol=1e-10)
        for part in ("returns", "guarantees", "moved", "tv_max"):
            np.testing.assert_allclose(
                getattr(together, part)[:, i], getattr(alone, part), atol=1e-9
            )


def test_the_paper_does_not_move_at_gamma_0_9(reached):
    result, share = reached(algorithms.paper, 20)
    assert not result.moved.any()
    assert (result.guarantees == 0).all()
    np.testing.assert_allclose(share, 0, atol=1e-12)


def test_the_exact_version_reaches_nearly_all_within_a_thousand_rounds(reached):
    result, share = reached(algorithms.second_order_exact, 1000)
    assert result.monotone
    assert (result.guarantees >= 0).all()
    assert (share[-1] >= 0.95).all()


def test_second_order_reaches_most_within_a_thousand_rounds(reached):
    result, share = reached(algorithms.second_order, 1000)
    assert result.monotone
    assert (result.guarantees >= 0).all()
    assert (share[-1] >= 0.9).all()


def test_a_common_radius_leads_up_too(reached):
    result, share = reached(algorithms.common_radius, 30)
    assert result.monotone
    assert (share[-1] > 0.3).all()


def test_line_search_needs_two_rounds_for_nine_tenths(reached):
    result, share = reached(algorithms.line_search, 2)
    assert result.monotone
    assert (share[-1] >= 0.9).all()


def test_looking_at_ones_own_states_leads_down_where_the_federations_lead_to_the_optimum():
    """The optimum has 3/8 from state 0 and 1/2 from state 1; the wrong way loses that 1/2."""
    family = counterexamples.own_states()
    up, down = (iterate(family, name, 200) for name in ("anchored", "own-states"))
    assert up.monotone
    np.testing.assert_allclose(up.returns[-1], 7 / 8)
    assert (np.diff(down.returns) <= 1e-12).all()
    np.testing.assert_allclose(down.returns[-1], -1 / 2)
    assert np.isnan(down.guarantees).all()


def test_where_the_paper_moves_it_ends_at_a_stationary_policy():
    """Theorem 3 at gamma 1/20: eta converges, and no agent can gain by h any more."""
    sizes = {"agents": 3, "states": 4, "actions": 3, "gamma": 0.05, "level": 0.1}
    many = Family.stack([families.random(**sizes, seed=seed) for seed in range(10)])
    result = iterate(many, algorithms.paper, 300)
    assert (result.moved[0] > 0).all()
    assert (result.returns[-1] > result.returns[0]).all()
    assert result.monotone
    np.testing.assert_allclose(result.returns[-1], result.returns[-2], atol=1e-9)
    h = objectives.paper(Exact(many, result.policy))
    np.testing.assert_allclose(h(best_response(h)), 0, atol=1e-6)


def test_returns_that_are_large_and_cancel_raise_no_false_alarm():
    drawn = families.random(agents=2, states=4, actions=3, gamma=0.9, seed=0)
    opposite = drawn.rewards + np.array([1e6, -1e6])[:, None, None]
    family = Family(drawn.initial, drawn.transitions, opposite, gamma=0.9)
    assert iterate(family, algorithms.common_radius, 100).monotone


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([2.0, -1.0], "agent 1: weights must not be negative: -1"),
        ([0.5, 0.6], r"weights must sum to 1 over agents, not to 1\.1"),
        ([1.0], "weights are needed for 2 agents, not 1"),
    ],
)
def test_server_weights_that_are_no_distribution_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        iterate(families.chain(agents=2), algorithms.paper, 1, weights=lambda index: weights)


# Who takes part in a round.


def test_as_many_take_part_as_asked_with_their_weights():
    family = families.chain(agents=4)
    uneven = Family(family.initial, family.transitions, family.rewards, 0.9, [0.1, 0.2, 0.3, 0.4])
    weights = draw_participants(uneven, 2, seed=0)
    for index in range(20):
        w = weights(index)
        taking = w > 0
        assert taking.sum() == 2
        np.testing.assert_allclose(w[taking], uneven.weights[taking] / uneven.weights[taking].sum())


def test_a_round_depends_on_its_number_and_the_seed_alone():
    family = families.chain(agents=6)
    first, again = (draw_participants(family, 3, seed=5) for _ in range(2))
    forwards = [first(index) for index in range(10)]
    backwards = [again(index) for index in reversed(range(10))][::-1]
    np.testing.assert_array_equal(forwards, backwards)
    assert len({tuple(w) for w in forwards}) > 1


def test_agents_without_weight_may_be_the_only_ones_drawn():
    family = families.chain(agents=2)
    one_sided = Family(family.initial, family.transitions, family.rewards, 0.9, [1.0, 0.0])
    weights = draw_participants(one_sided, 1, seed=0)
    assert {tuple(weights(index)) for index in range(20)} == {(1.0, 0.0), (0.0, 1.0)}


@pytest.mark.parametrize("count", [0, 4])
def test_nobody_and_more_than_there_are_cannot_take_part(count):
    with pytest.raises(ValueError, match=f"from 1 to the number of agents, 3, not {count}"):
        draw_participants(families.chain(agents=3), count, seed=0)
