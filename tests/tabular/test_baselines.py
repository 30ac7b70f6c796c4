"""QAvg against value iteration, PAvg by hand, and the projection against its conditions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from fedkl.tabular import Exact, Family, families, iterate, optimum
from fedkl.tabular.baselines import pavg, project, qavg

VECTORS = arrays(np.int64, 4, elements=st.integers(-6, 6), fill=st.nothing()).map(lambda x: x / 4)


def value_iteration(family, rounds):
    """Q tables of an MDP, one after each round, by a plain loop."""
    Q = np.zeros((family.states, family.actions))
    for _ in range(rounds):
        Q = family.rewards[0] + float(family.gamma) * family.transitions[0] @ Q.max(axis=-1)
        yield Q


@settings(max_examples=40, deadline=None)
@given(...)
def test_qavg_with_one_local_step_is_value_iteration_on_the_averaged_mdp(at: Exact):
    family, memory = at.family, None
    for Q in value_iteration(families.averaged(family), 20):
        result = qavg(local_steps=1, step_size=1.0)(at, family.weights, memory)
        np.testing.assert_allclose(result.memory, Q, rtol=1e-12, atol=1e-12)
        ties = np.sort(Q, axis=-1)[:, -2:]
        clear = ties[:, -1] - ties[:, 0] > 1e-9  # rounding may break a tie either way
        np.testing.assert_array_equal(
            result.policy[clear], np.eye(family.actions)[Q.argmax(axis=-1)][clear]
        )
        memory = result.memory


def test_qavg_ends_at_the_best_policy_of_the_averaged_mdp(batch):
    result = iterate(batch, qavg(), rounds=200)
    best = optimum.policy_iteration(families.averaged(batch))
    np.testing.assert_array_equal(result.policy, best)
    assert np.isnan(result.guarantees).all()


def test_qavg_by_hand():
    """Bandits of rewards (1, 0) and (0, 3), gamma 1/2, two local half steps from Q = 0.

    Q_1 = (1/2, 0), then (1/4 + (1 + 1/4) / 2, (1/4) / 2); Q_2 likewise, and the mean.
    """
    rewards = [[[1.0, 0.0]], [[0.0, 3.0]]]
    family = Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, gamma=0.5)
    at = Exact(family, family.uniform_policy())
    result = qavg(local_steps=2, step_size=0.5)(at, family.weights, None)
    first, second = np.array([0.875, 0.125]), np.array([0.375, 0.75 + 1.875])
    np.testing.assert_allclose(result.memory, [(first + second) / 2])
    assert result.policy.tolist() == [[0, 1]]
    alone = qavg(local_steps=2, step_size=0.5)(at, np.array([1.0, 0.0]), None)
    np.testing.assert_allclose(alone.memory, [first])


def test_pavg_by_hand():
    """rho = 2, A = (1, -1): a step of 1/10 moves 1/5. The second agent wants half the opposite."""
    rewards = [[[1.0, -1.0]], [[-0.5, 0.5]]]
    family = Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, gamma=0.5)
    at = Exact(family, family.uniform_policy())
    step = pavg(local_steps=1, step_size=0.1)
    np.testing.assert_allclose(step(at, np.array([1.0, 0.0]), None).policy, [[0.7, 0.3]])
    np.testing.assert_allclose(step(at, np.array([0.0, 1.0]), None).policy, [[0.4, 0.6]])
    result = step(at, family.weights, None)
    np.testing.assert_allclose(result.policy, [[0.55, 0.45]])
    assert result.guarantee is None
    assert result.moved.tolist() == [True, True]


def test_pavg_of_one_agent_does_not_lose():
    """Where the step is short enough: eta's gradient changes by at most a horizon to the third."""
    sizes = {"agents": 1, "states": 4, "actions": 3, "gamma": 0.5}
    many = Family.stack([families.random(**sizes, seed=seed) for seed in range(10)])
    result = iterate(many, pavg(local_steps=5, step_size=0.01), rounds=40)
    assert result.monotone
    assert (result.returns[-1] > result.returns[0] + 0.05).all()


@pytest.mark.parametrize("algorithm", [qavg(3, 0.5), pavg(3, 0.1)])
def test_a_batch_gives_what_each_family_gives_alone(algorithm, batch):
    together = iterate(batch, algorithm, rounds=5)
    for i in range(4):
        alone = iterate(batch[i], algorithm, rounds=5)
        np.testing.assert_allclose(together.policy[i], alone.policy, atol=1e-12)
        np.testing.assert_allclose(together.returns[:, i], alone.returns)


@settings(max_examples=100, deadline=None)
@given(VECTORS)
def test_the_projection_satisfies_the_conditions_of_the_nearest_distribution(x):
    """x - p is the same wherever p > 0, and nowhere else larger (KKT)."""
    p = project(x)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-14)
    taken = p > 0
    level = (x - p)[taken]
    np.testing.assert_allclose(level, level[0], atol=1e-14)
    assert (x[~taken] <= level[0] + 1e-14).all()


@settings(max_examples=10, deadline=None)
@given(VECTORS)
def test_the_projection_agrees_with_a_general_solver(x):
    found = minimize(
        lambda p: ((p - x) ** 2).sum(),
        np.full(4, 0.25),
        jac=lambda p: 2 * (p - x),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15},
    )
    np.testing.assert_allclose(project(x), found.x, atol=1e-6)


def test_the_projection_works_along_the_last_axis_and_leaves_distributions_alone():
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    np.testing.assert_array_equal(project(x)[1, 2], project(x[1, 2]))
    np.testing.assert_allclose(project(project(x)), project(x), atol=1e-15)
    assert project(np.array([5.0, 0.0])).tolist() == [1, 0]
