"""A step by hand, the policy advantage, and the performance-difference lemma."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.tabular import Exact, Family, Step, families

some = settings(max_examples=40, deadline=None)


def test_a_step_of_a_bandit_by_hand():
    """rho = 2, A = (1, -1); a quarter moves to the better action: 2 (1/4 1 + 1/4 1) = 1."""
    bandit = Family([[1.0]], np.ones((1, 1, 2, 1)), [[[3.0, 1.0]]], gamma=0.5)
    step = Step(Exact(bandit, [[0.5, 0.5]]), [[[0.75, 0.25]]])
    assert step.change.tolist() == [[[0.25, -0.25]]]
    assert step.tv.tolist() == [[0.25]]
    assert step.tv_max.tolist() == [0.25]
    np.testing.assert_allclose(step.tv_expected, [0.5])
    np.testing.assert_allclose(step.kl, [[0.5 * np.log(2 / 3) + 0.5 * np.log(2)]])
    np.testing.assert_allclose(step.policy_advantage, [1.0])
    np.testing.assert_allclose(step.own_return, [5.0])  # from 4 to 2 (3 3/4 + 1/4)


@some
@given(...)
def test_staying_has_no_policy_advantage(at: Exact):
    step = Step(at, at.policy)
    assert step.local.shape == at.advantage.shape
    assert not step.policy_advantage.any()
    assert not step.global_policy_advantage.any()
    assert not step.tv.any()
    assert not step.kl.any()


@some
@given(step=...)
def test_policy_advantage_is_the_trace(step: Step, rounding):
    """AA_n = trace(D_n A_n Pi_n^T) = sum_s rho_n(s) sum_a pi_n(a | s) A_n(s, a)."""
    at = step.before
    for n in range(at.family.agents):
        trace = np.trace(np.diag(at.visitation[n]) @ at.advantage[n] @ step.local[n].T)
        assert step.policy_advantage[n] == pytest.approx(trace, abs=rounding(at))


@some
@given(step=..., share=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_policy_advantage_is_linear(step: Step, rounding, share: float):
    at = step.before
    other = step.local[::-1]
    mixed = Step(at, share * step.local + (1 - share) * other)
    for name in ("policy_advantage", "global_policy_advantage"):
        parts = share * getattr(step, name) + (1 - share) * getattr(Step(at, other), name)
        np.testing.assert_allclose(getattr(mixed, name), parts, atol=rounding(at))


@some
@given(step=...)
def test_global_policy_advantage_is_the_weighted_mean_over_agents(step: Step, rounding):
    """sum_k q_k AA_k(pi_n); its difference to AA_n is <D_n B_n, Pi_n - Pi>."""
    at = step.before
    everywhere = np.einsum("ksa,nsa->nk", at.weighted_advantage, step.change)
    expected = everywhere @ at.family.weights
    np.testing.assert_allclose(step.global_policy_advantage, expected, atol=rounding(at))
    differs = (at.weighted_heterogeneity * step.change).sum(axis=(-2, -1))
    np.testing.assert_allclose(step.policy_advantage + differs, expected, atol=rounding(at))


@some
@given(step=...)
def test_the_performance_difference_lemma(step: Step, rounding):
    """eta_k(pi') - eta_k(pi) = sum_s rho_{k, pi'}(s) sum_a pi'(a | s) A_{k, pi}(s, a)."""
    at = step.before
    rise = step.after.agent_returns - at.agent_returns  # [n, k]
    lemma = np.einsum("nks,nsa,ksa->nk", step.after.visitation, step.local, at.advantage)
    np.testing.assert_allclose(rise, lemma, atol=rounding(at))


@some
@given(step=...)
def test_returns_after_the_step_are_those_of_every_policy_by_itself(step: Step, rounding):
    at = step.before
    for n, local in enumerate(step.local):
        alone = Exact(at.family, local)
        assert step.global_return[n] == pytest.approx(alone.expected_return, abs=rounding(at))
        assert step.own_return[n] == pytest.approx(alone.agent_returns[n], abs=rounding(at))


@some
@given(...)
def test_the_server_averages_policies(step: Step):
    """Agents of weight 0 take no part."""
    N = step.before.family.agents
    np.testing.assert_allclose(step.averaged(np.eye(N)[0]), step.local[0], atol=1e-15)
    average = step.averaged(np.full(N, 1 / N))
    np.testing.assert_allclose(average, step.local.mean(axis=0), atol=1e-15)
    assert (average >= 0).all()


@some
@given(...)
def test_policies_that_did_not_move_average_to_exactly_the_global_one(at: Exact):
    weights = np.random.default_rng(0).dirichlet(np.ones(at.family.agents))
    np.testing.assert_array_equal(Step(at, at.policy).averaged(weights), at.policy)


@some
@given(...)
def test_distances_to_the_average_are_at_most_the_average_distances(step: Step):
    """Convexity, on which Theorem 2 rests."""
    w = step.before.family.weights
    average = Step(step.before, step.averaged(w))
    assert (average.tv[0] <= w @ step.tv + 1e-15).all()
    assert average.tv_max[0] <= w @ step.tv_max + 1e-15
    assert average.tv_max[0] ** 2 <= w @ step.tv_max**2 + 1e-15


def test_a_batch_of_steps_is_what_each_is_alone():
    many = [families.random(agents=3, states=4, actions=2, gamma=0.9, seed=s) for s in range(4)]
    rng = np.random.default_rng(0)
    policies, local = rng.dirichlet(np.ones(2), (4, 4)), rng.dirichlet(np.ones(2), (4, 3, 4))
    together = Step(Exact(Family.stack(many), policies), local)
    no_arrays = ("after", "averaged", "before_each")
    names = [name for name in dir(Step) if name[0] != "_" and name not in no_arrays]
    assert len(names) >= 8
    for i, family in enumerate(many):
        alone = Step(Exact(family, policies[i]), local[i])
        for name in names:
            np.testing.assert_allclose(getattr(together, name)[i], getattr(alone, name))
        average = together.averaged(together.before.family.weights)[i]
        np.testing.assert_allclose(average, alone.averaged(family.weights))


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ([[[0.5, 0.6]] * 3] * 2, r"agent 0, state 0: the policy must sum to 1"),
        ([[[0.5, 0.5]] * 2] * 2, r"must end in the shape \(3, 2\)"),
        ([[[0.5, 0.5]] * 3] * 5, r"local policies are needed for 2 agents, not 5"),
    ],
)
def test_what_are_no_local_policies_is_refused(local, message):
    family = families.random(agents=2, states=3, actions=2, gamma=0.9, seed=0)
    with pytest.raises(ValueError, match=message):
        Step(Exact(family, family.uniform_policy()), local)
