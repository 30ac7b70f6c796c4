"""What is sampled on finite MDPs, beside what `tabular` solves for."""

from itertools import pairwise

import jax
import numpy as np
import pytest

from fedkl.heterogeneity import Measure, level
from fedkl.tabular import Exact, Family, counterexamples, families
from fedkl.tabular.distances import frobenius

pytestmark = pytest.mark.usefixtures("quick_compilation")


def in_cells(trajectories, states, ridge=0.01):
    """A measurement in which every state has a feature of its own."""
    return Measure(trajectories, "buckets", states, 1.0, ridge)


def column(levels, name):
    """One number of all clients."""
    return np.array([getattr(levels[client], name) for client in sorted(levels)])


def repeated(sampled, work, times, names):
    """Some numbers of all clients, measured again and again: [times, agents] each."""
    found = [level(sampled.measure(work, jax.random.key(seed))) for seed in range(times)]
    return [np.stack([column(levels, name) for levels in found]) for name in names]


def grid(level, own_rewards=True):
    """Ten agents on the 10 x 10 grid with winds, and rewards in every cell or at the goal alone."""
    windy = families.windy_grid(agents=10, rows=10, columns=10, gamma=0.9, level=level)
    if not own_rewards:
        return windy
    rewards = np.broadcast_to(np.random.default_rng(0).normal(size=(100, 4)), (10, 100, 4))
    return Family(windy.initial, windy.transitions, rewards, 0.9)


def test_errors_fall_with_the_root_of_the_number_of_trajectories(finite_world):
    family = families.random(agents=3, states=6, actions=3, gamma=0.8, seed=4, level=0.7)
    policy = np.random.default_rng(1).dirichlet(np.full(3, 5.0), 6)
    exact = Exact(family, policy)
    truths = (
        frobenius(exact.weighted_advantage) ** 2,
        frobenius(exact.weighted_heterogeneity) ** 2,
        exact.alignment,
    )
    sampled = finite_world.Sampled(family, policy, horizon=40)
    names = ("advantage_squared", "heterogeneity_squared", "alignment")
    errors, biases = [], []
    for trajectories, times in ((40, 24), (160, 24), (640, 12)):
        found = repeated(sampled, in_cells(trajectories, 6), times, names)
        sizes = [np.mean(abs(truth)) for truth in truths]
        off = [(x - truth) / size for x, truth, size in zip(found, truths, sizes, strict=True)]
        errors.append([np.sqrt(np.mean(x**2)) for x in off])
        biases.append([abs(np.mean(x)) for x in off])
    for fewer, more in pairwise(errors):
        ratio = np.divide(fewer, more)
        assert ((ratio > 1.4) & (ratio < 2.8)).all()  # four times as many: half the error
    assert (np.array(errors[-1]) < 0.12).all()
    assert (np.array(biases[-1]) < 0.03).all()


@pytest.mark.parametrize("own_rewards", [True, False])
def test_agents_that_are_alike_do_not_look_heterogeneous(finite_world, own_rewards):
    """At 100 trajectories: the mean of ||DB|| over agents is within 10 % of ||DA|| of 0."""
    family = grid(level=0.0, own_rewards=own_rewards)
    sampled = finite_world.Sampled(family, family.uniform_policy(), horizon=60)
    exact = frobenius(Exact(family, family.uniform_policy()).weighted_advantage)
    names = ("heterogeneity", "heterogeneity_squared", "learning_potential")
    apart, squared, potential = repeated(sampled, in_cells(100, 100), 4, names)
    assert abs(np.mean(apart / exact)) < 0.1
    assert abs(np.mean(squared / exact**2)) < 0.05
    assert np.mean(potential > 0) >= 0.95


def test_the_sign_of_g_is_right_on_a_grid_of_agents_that_differ(finite_world):
    """At 100 trajectories, and in agents of both signs: the weight is on the wind from below."""
    windy = grid(level=1.0)
    weights = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 2, 30])
    family = Family(windy.initial, windy.transitions, windy.rewards, 0.9, weights / weights.sum())
    exact = Exact(family, family.uniform_policy())
    assert set(np.sign(exact.learning_potential)) == {-1.0, 1.0}
    sampled = finite_world.Sampled(family, family.uniform_policy(), horizon=60)
    q = dict(enumerate(family.weights))
    found = [level(sampled.measure(in_cells(100, 100), jax.random.key(s)), q) for s in range(2)]
    right = [
        np.sign(column(levels, "learning_potential")) == np.sign(exact.learning_potential)
        for levels in found
    ]
    assert np.mean(right) >= 0.9
    apart = np.stack([column(levels, "heterogeneity") for levels in found])
    error = np.mean(apart - frobenius(exact.weighted_heterogeneity))
    # The noise of the one agent that has most of the weight is in all.
    assert abs(error) < 0.2 * np.mean(frobenius(exact.weighted_advantage))


def test_g_may_be_negative_where_the_alignment_is_positive(finite_world):
    """The counterexample to Corollary 1, where B_1 = 2 A_1 and what helps one helps both."""
    family = counterexamples.corollary_1()
    policy = family.uniform_policy()
    sampled = finite_world.Sampled(family, policy, horizon=60)
    found = level(sampled.measure(in_cells(400, 2), jax.random.key(0)))
    exact = Exact(family, policy)
    assert exact.learning_potential[0] < 0 < exact.alignment[0]
    assert found[0].learning_potential < 0 < found[0].alignment
    assert found[0].ratio == pytest.approx(2, rel=0.1)
    np.testing.assert_allclose(column(found, "alignment"), exact.alignment, rtol=0.1)


def test_the_alignment_of_an_agent_against_all_others_is_negative(finite_world):
    """Three bandits, of which one is paid for the contrary: A = (1, -1) twice and (-1, 1)."""
    rewards = np.array([[[1.0, -1.0]], [[1.0, -1.0]], [[-1.0, 1.0]]])
    family = Family(np.ones((3, 1)), np.ones((3, 1, 2, 1)), rewards, gamma=0.5)
    policy = family.uniform_policy()
    exact = Exact(family, policy)
    sampled = finite_world.Sampled(family, policy, horizon=20)
    found = level(sampled.measure(in_cells(40, 1), jax.random.key(0)))
    np.testing.assert_allclose(column(found, "alignment"), exact.alignment, rtol=0.05)
    np.testing.assert_allclose(exact.alignment, [2 / 3, 2 / 3, -2 / 3])
    np.testing.assert_allclose(
        column(found, "learning_potential"), exact.learning_potential, rtol=0.05
    )
