"""The search against brute force, dense grids, and cases whose optimum is that of an MDP."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from fedkl.tabular import Exact, Family, families, optimum

SIZES = {"agents": 3, "states": 4, "actions": 3}


def deterministic(states, actions):
    """All policies without chance, [actions^states, S, A]."""
    return np.array(
        [np.eye(actions)[list(choice)] for choice in product(range(actions), repeat=states)]
    )


def test_the_best_of_a_bandit_by_hand():
    """gamma 1/2: the mean of the rewards is (2, 1), of every agent's best 3."""
    rewards = [[[4.0, 0.0]], [[0.0, 2.0]]]
    found = optimum.search(Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, gamma=0.5))
    assert found.policy.tolist() == [[1, 0]]
    assert found.found == pytest.approx(4)
    assert found.ceiling == pytest.approx(6)
    assert found.share(2.0, 3.0) == pytest.approx(0.5)


@settings(max_examples=40, deadline=None)
@given(family=...)
def test_policy_iteration_agrees_with_trying_all_policies(family: Family):
    own = optimum.policy_iteration(family.alone())
    everything = deterministic(family.states, family.actions)
    tried = Exact(family, everything).value  # [policies, N, S]
    best = Exact(family.alone(), own).value[:, 0]  # [N, S]
    np.testing.assert_allclose(best, tried.max(axis=0), rtol=1e-9, atol=1e-9)
    assert ((own == 0) | (own == 1)).all()


def test_policy_iteration_is_for_one_mdp():
    with pytest.raises(ValueError, match="solves one MDP, not a family of several agents"):
        optimum.policy_iteration(families.random(**SIZES, gamma=0.9, seed=0))


@settings(max_examples=25, deadline=None)
@given(family=...)
def test_what_is_found_is_attained_and_below_the_ceiling(family: Family):
    best = optimum.search(family)
    assert best.found == pytest.approx(float(Exact(family, best.policy).expected_return))
    assert best.found <= best.ceiling + 1e-9 * (1 + abs(best.ceiling))


def test_on_nearly_all_random_families_no_deterministic_policy_is_better():
    """eta may have several maxima, and the search may miss the highest."""
    sizes = {"agents": 3, "states": 3, "actions": 3, "gamma": 0.9}
    many = Family.stack([families.random(**sizes, seed=seed) for seed in range(60)])
    tried = Exact(many[..., None], deterministic(3, 3)).expected_return.max(axis=-1)
    missed = optimum.search(many).found < tried - 1e-6
    assert missed.mean() <= 0.05


def test_where_another_action_in_one_state_is_better_it_is_found():
    """At gamma 1/2 the search ends at actions 0, 2, 1 and 10/9; 1, 2, 1 would give 49/39."""
    to, half = np.eye(3), [0.5, 0.5, 0.0]
    first = [[to[2], to[1], to[0]], [to[0], to[0], to[2]], [to[0], half, to[0]]]
    second = [[[0.5, 0, 0.5], to[0], to[0]], [to[0], to[0], to[2]], [to[0]] * 3]
    rewards = np.zeros((2, 3, 3))
    rewards[0, :2] = [[2, -2, 0], [0, 0, 2]]
    rewards[1, 0, 1] = 2
    family = Family([[1 / 3] * 3, [0.25, 0.5, 0.25]], [first, second], rewards, gamma=0.5)
    assert Exact(family, np.eye(3)[[1, 2, 1]]).expected_return == pytest.approx(49 / 39)
    assert optimum.search(family).found >= 49 / 39 - 1e-6


def test_if_only_rewards_differ_it_is_the_best_of_the_averaged_mdp():
    many = Family.stack(
        [families.random(**SIZES, gamma=0.9, seed=s, heterogeneity="R") for s in range(5)]
    )
    averaged = families.averaged(many)
    expected = Exact(averaged, optimum.policy_iteration(averaged)).expected_return
    np.testing.assert_allclose(optimum.search(many).found, expected, rtol=1e-6)


def test_agents_that_are_alike_reach_the_ceiling():
    many = Family.stack(
        [families.random(**SIZES, gamma=0.9, seed=s, heterogeneity="none") for s in range(5)]
    )
    best = optimum.search(many)
    np.testing.assert_allclose(best.found, best.ceiling, rtol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_on_two_states_it_agrees_with_a_dense_grid_over_stochastic_policies(seed):
    sizes = {"agents": 3, "states": 2, "actions": 2}
    family = families.random(**sizes, gamma=0.9, seed=seed, concentration=0.3)
    p, q = np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101))
    grid = np.stack([np.stack([p, 1 - p], axis=-1), np.stack([q, 1 - q], axis=-1)], axis=-2)
    highest = Exact(family, grid).expected_return.max()
    found = float(optimum.search(family).found)
    assert highest - 1e-6 <= found <= highest + 1e-3 * (1 + abs(highest))


def opposed():
    """Agent 0 stays in state 0 by action 0, agent 1 by action 1; the other action ends it.

    Each step in state 0 pays 1. Agent 0 stays there for 1 / (1 - .9 p) steps, discounted.
    """
    stay, end = [1.0, 0.0], [0.0, 1.0]
    transitions = [[[stay, end], [end, end]], [[end, stay], [end, end]]]
    return Family([[1.0, 0.0]] * 2, transitions, [[[1.0, 1.0], [0, 0]]] * 2, gamma=0.9)


def test_the_best_common_policy_may_have_to_choose_a_side():
    """eta(p) = 1/2 / (1 - .9 p) + 1/2 / (.1 + .9 p) is convex: the middle is its minimum."""
    best = optimum.search(opposed())
    assert best.found == pytest.approx((10 + 1) / 2)
    assert best.ceiling == pytest.approx(10)
    assert best.policy[0].max() == pytest.approx(1)


def test_the_best_common_policy_may_have_to_be_stochastic():
    """As before, but staying costs 1 a step: eta(p) is the negative, highest in the middle."""
    family = opposed()
    costly = Family(family.initial, family.transitions, -family.rewards, family.gamma)
    best = optimum.search(costly)
    np.testing.assert_allclose(best.policy[0], [0.5, 0.5], atol=1e-3)
    assert best.found == pytest.approx(-1 / (1 - 0.9 / 2))
    every = Exact(costly, deterministic(2, 2)).expected_return
    assert every.max() == pytest.approx(-5.5)


def test_a_batch_gives_what_each_family_gives_alone(batch):
    """The random starts are other ones, but the optimum is the same."""
    together = optimum.search(batch)
    for i in range(2):
        alone = optimum.search(batch[i])
        np.testing.assert_allclose(together.found[i], alone.found, rtol=1e-6)
        np.testing.assert_allclose(together.ceiling[i], alone.ceiling, rtol=1e-12)


def test_the_seed_determines_the_search(batch):
    one, other = (optimum.search(batch[:1], seed=3, random_starts=2) for _ in range(2))
    np.testing.assert_array_equal(one.policy, other.policy)


def test_where_nothing_can_be_improved_all_is_reached():
    found = optimum.search(Family([[1.0]], np.ones((1, 1, 2, 1)), [[[1.0, 1.0]]], gamma=0.5))
    assert found.share(np.array(2.0), np.array(2.0)) == 1


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_shares_do_not_depend_on_the_unit_of_reward(scale):
    drawn = families.random(agents=2, states=4, actions=3, gamma=0.9, seed=0)
    family = Family(drawn.initial, drawn.transitions, scale * drawn.rewards, gamma=0.9)
    best = optimum.search(family)
    start = Exact(family, family.uniform_policy()).expected_return
    assert best.share(start, start) == 0
    assert best.share(start, best.found) == 1
