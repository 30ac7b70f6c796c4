"""Exact quantities by hand, against series and solvers of their own, and their identities."""

import numpy as np
import pytest
from hypothesis import given, settings

from fedkl.tabular import Exact, Family, InvalidFamily, Step, constants, families

some = settings(max_examples=40, deadline=None)

# Two states, two actions, gamma 1/2: `stay` and `go` to the other state. Being in state 1 pays 3.
MOVES = [[[1.0, 0], [0, 1]], [[0, 1], [1, 0]]]
TWO = Family([[1.0, 0.0]], [MOVES], [[[0.0, 0.0], [3.0, 3.0]]], gamma=0.5)


def truncated(at, steps=4000):
    """rho as its definition has it: sum_t gamma^t P(s_t = s)."""
    moves = np.einsum("sa,nsat->nst", at.policy, at.family.transitions)
    now, total = at.family.initial, 0.0
    for t in range(steps):
        total = total + at.family.gamma**t * now
        now = np.einsum("ns,nst->nt", now, moves)
    return total


def moved(at, direction, t):
    """eta of pi (1 + t x), for small t."""
    return Exact(at.family, at.policy * (1 + t * direction)).expected_return


def norm(at, x):
    """||X||_n: the root of E_{rho_n, pi}[X^2]."""
    return np.sqrt(np.einsum("ns,sa,nsa->n", at.visitation, at.policy, x**2))


def test_two_states_by_hand():
    """Half the time it goes. In state 1 it earns 3 now: V = (v, v + 3), v = (v + v + 3) / 4."""
    at = Exact(TWO, [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(at.value, [[1.5, 4.5]])
    np.testing.assert_allclose(at.action_value, [[[0.75, 2.25], [5.25, 3.75]]])
    np.testing.assert_allclose(at.advantage, [[[-0.75, 0.75], [0.75, -0.75]]])
    # After the first step both states are equally likely: 1 + 1/2 (1/2 + 1/4 + ...) = 3/2.
    np.testing.assert_allclose(at.visitation, [[1.5, 0.5]])
    np.testing.assert_allclose(at.agent_returns, [1.5])
    assert at.expected_return == pytest.approx(1.5)
    np.testing.assert_allclose(at.weighted_advantage, [[[-1.125, 1.125], [0.375, -0.375]]])
    np.testing.assert_allclose(at.largest_advantage, [0.75])
    np.testing.assert_allclose(at.advantage_span, [[1.5, 1.5]])


def test_a_deterministic_policy_by_hand():
    """It goes at once and stays for ever: 0 + 3 (1/2 + 1/4 + ...) = 3."""
    at = Exact(TWO, [[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(at.visitation, [[1.0, 1.0]])
    np.testing.assert_allclose(at.value, [[3.0, 6.0]])
    np.testing.assert_allclose(at.advantage, [[[-1.5, 0.0], [0.0, -1.5]]])


def test_played_out_many_times_the_return_is_the_same():
    rng = np.random.default_rng(0)
    state, total = np.zeros(40_000, dtype=int), np.zeros(40_000)
    for t in range(30):
        total += 0.5**t * 3.0 * state
        state = np.where(rng.random(40_000) < 0.5, 1 - state, state)
    expected = float(Exact(TWO, TWO.uniform_policy()).expected_return)
    assert total.mean() == pytest.approx(expected, abs=4 * total.std() / 200)


@some
@given(...)
def test_visitation_has_the_mass_of_the_horizon(at: Exact):
    np.testing.assert_allclose(at.visitation.sum(axis=-1), 1 / (1 - at.family.gamma))


@some
@given(...)
def test_visitation_is_at_least_the_initial_distribution(at: Exact):
    assert (at.visitation >= at.family.initial * (1 - 1e-14)).all()


@settings(max_examples=10, deadline=None)
@given(...)
def test_visitation_is_the_discounted_series(at: Exact):
    np.testing.assert_allclose(at.visitation, truncated(at), rtol=1e-9)


@some
@given(...)
def test_value_solves_the_bellman_equation(at: Exact):
    ahead = np.einsum("nsat,nt->nsa", at.family.transitions, at.value)
    backup = np.einsum("sa,nsa->ns", at.policy, at.family.rewards + at.family.gamma * ahead)
    np.testing.assert_allclose(at.value, backup, rtol=1e-9, atol=1e-9)


@some
@given(...)
def test_the_policy_averages_advantages_to_zero(at: Exact):
    mean = (at.policy * at.advantage).sum(axis=-1)
    np.testing.assert_allclose(mean, 0, atol=1e-11 * (1 + abs(at.value).max()))


@some
@given(...)
def test_the_return_is_what_is_earned_where_one_is(at: Exact):
    earned = np.einsum("ns,sa,nsa->n", at.visitation, at.policy, at.family.rewards)
    np.testing.assert_allclose(at.agent_returns, earned, rtol=1e-9, atol=1e-9)
    assert at.expected_return == pytest.approx(earned @ at.family.weights, rel=1e-9, abs=1e-9)


@some
@given(...)
def test_weighted_heterogeneities_cancel(at: Exact):
    total = np.einsum("n,nsa->sa", at.family.weights, at.weighted_heterogeneity)
    np.testing.assert_allclose(total, 0, atol=1e-12 * (1 + abs(at.weighted_advantage).max()))


@some
@given(...)
def test_the_policy_averages_heterogeneity_to_zero(at: Exact):
    mean = (at.policy * at.weighted_heterogeneity).sum(axis=-1)
    size = 1 + abs(at.value).max() / (1 - at.family.gamma)
    np.testing.assert_allclose(mean, 0, atol=1e-11 * size)


@some
@given(...)
def test_the_heterogeneity_matrix_is_definition_1(at: Exact):
    """B_n = D_n^-1 sum_k q_k D_k A_k - A_n; A_n + B_n mixes the agents by rho_k / rho_n."""
    for n in range(at.family.agents):
        ratio = at.visitation / at.visitation[n]
        mixture = np.einsum("k,ks,ksa->sa", at.family.weights, ratio, at.advantage)
        size = 1 + abs(at.value).max() * ratio.max()
        B = at.heterogeneity_matrix[n]
        np.testing.assert_allclose(at.advantage[n] + B, mixture, atol=1e-11 * size)
        assert at.heterogeneity_level[n] == pytest.approx(np.linalg.norm(B))


@some
@given(...)
def test_identical_agents_have_no_heterogeneity(at: Exact):
    one = at.family
    twins = Family(
        *(np.stack([x[0]] * 3) for x in (one.initial, one.transitions, one.rewards)), 0.9
    )
    level = Exact(twins, at.policy).heterogeneity_level
    np.testing.assert_allclose(level, 0, atol=1e-11 * (1 + abs(at.value).max()))


@some
@given(...)
def test_potential_shaped_rewards_make_no_heterogeneity_though_agents_differ(at: Exact):
    """R_2 = R_1 + gamma P Phi - Phi changes V by -Phi and leaves every advantage as it is."""
    mu, P, R = at.family.initial[0], at.family.transitions[0], at.family.rewards[0]
    gamma, potential = float(at.family.gamma), 1.0 + np.arange(at.family.states)
    shaped = R + gamma * P @ potential - potential[:, None]
    pair = Exact(Family([mu] * 2, [P] * 2, [R, shaped], gamma), at.policy)
    np.testing.assert_allclose(pair.value[0] - pair.value[1], potential, rtol=1e-9)
    assert abs(pair.agent_returns[0] - pair.agent_returns[1]) > 0.5
    np.testing.assert_allclose(pair.heterogeneity_level, 0, atol=1e-10 / (1 - gamma) ** 2)


def bandits(rewards, gamma=0.5, **more):
    """One state; the agents differ in their rewards, which are their advantages if pi R = 0."""
    N, A = np.shape(rewards)
    return Family(np.ones((N, 1)), np.ones((N, 1, A, 1)), np.array(rewards)[:, None], gamma, **more)


def test_learning_potential_of_bandits_by_hand():
    """At gamma 1/2 rho is 2. A_1 = (1, -1), A_2 = (3, -3): the mean is (2, -2), B = +-(1, -1)."""
    family = bandits([[1.0, -1.0], [3.0, -3.0]])
    at = Exact(family, family.uniform_policy())
    np.testing.assert_allclose(at.heterogeneity_matrix, [[[1, -1]], [[-1, 1]]], atol=1e-15)
    np.testing.assert_allclose(at.heterogeneity_level, [2**0.5, 2**0.5])
    np.testing.assert_allclose(at.learning_potential, [0, 2 * 3 * 2**0.5 - 2 * 2**0.5], atol=1e-14)
    # sum_k q_k rho_k sum_a pi A_k A_n: 2 (1 1 + 3 1) / 2 and 2 (1 3 + 3 3) / 2
    np.testing.assert_allclose(at.alignment, [4, 12])


def test_an_improving_step_does_not_need_less_heterogeneity_than_advantage():
    """Corollary 1 is about its bound: R_2 = 5 R_1 gives B_1 = 2 A_1, yet agent 1's step helps."""
    R = np.array([[0.0, 0.0], [3.0, 3.0]])
    family = Family([[1.0, 0.0]] * 2, [MOVES] * 2, [R, 5 * R], gamma=0.5)
    at = Exact(family, family.uniform_policy())
    np.testing.assert_allclose(at.heterogeneity_matrix[0], 2 * at.advantage[0])
    assert at.heterogeneity_level[0] > np.linalg.norm(at.advantage[0])
    assert at.learning_potential[0] < 0 < at.alignment[0]
    assert moved(at, at.advantage[0], 0.1) > at.expected_return + 0.1


@some
@given(at=...)
def test_alignment_has_the_sign_of_a_small_enough_step(at: Exact, rounding):
    """eta moves by t alignment, up to C TV_max^2: along pi (1 + t A_n) it follows the sign."""
    reach = 0.5 * (at.policy * abs(at.advantage)).sum(axis=-1).max(axis=-1)  # TV_max at t = 1
    limit = 1 / (1e-9 + abs(at.advantage).max())
    C = float(constants.curvature(at))
    for n in range(at.family.agents):
        slope = at.alignment[n]
        t = min(limit, abs(slope) / (2 * C * reach[n] ** 2 + 1e-9))
        rise = moved(at, at.advantage[n], t) - at.expected_return
        assert rise * np.sign(slope) >= t * abs(slope) / 2 - rounding(at)


@some
@given(...)
def test_less_heterogeneity_than_advantage_is_sufficient_in_the_right_norm(at: Exact):
    """||B_n||_n < ||A_n||_n, with the norm of E_{rho_n, pi}, makes the alignment positive."""
    B, A = norm(at, at.heterogeneity_matrix), norm(at, at.advantage)
    assert (at.alignment >= A * (A - B) - 1e-9 * (1 + A * (A + B))).all()
    sufficient = A - B > 1e-6 * (1 + A)
    assert (at.alignment[sufficient] > 0).all()


def test_a_positive_learning_potential_is_not_sufficient():
    """G weighs all actions alike, the slope by pi: pi = (.8, .1, .1), A_1 + A_2 = (-.2, 1.4, .2).

    |A_1|^2 = 105 > |B_1|^2 = 1.1^2 + 1.3^2 + 10.1^2 = 104.91, but the slope along A_1 is
    -.8 .1 + .1 2 .7 - .1 10 .1 = -.04 times rho = 2.
    """
    at = Exact(bandits([[1.0, 2.0, -10.0], [-1.2, -0.6, 10.2]]), [[0.8, 0.1, 0.1]])
    assert at.learning_potential[0] == pytest.approx(2 * (105**0.5 - 104.91**0.5), rel=1e-6)
    assert at.alignment[0] == pytest.approx(-0.08)
    assert moved(at, at.advantage[0], 1e-3) < at.expected_return


def test_a_positive_learning_potential_is_not_sufficient_at_the_uniform_policy_either():
    """G weighs states by rho_n, the slope does not. Nobody moves; rho_1 = 2 (.9, .1).

    A_1 = (1, -1) twice; M = 2 (.3, -.3), 2 (-.4, .4); |D_1 A_1|^2 = 8 .82 > |D_1 B_1|^2 = 8 .61.
    """
    still = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    pay = np.array([1.0, -1.0])
    rewards = [[pay, pay], [-3 * pay, -pay]]
    at = Exact(Family([[0.9, 0.1], [0.1, 0.9]], still, rewards, 0.5), np.full((2, 2), 0.5))
    np.testing.assert_allclose(at.global_advantage, [0.6 * pay, -0.8 * pay])
    assert at.learning_potential[0] == pytest.approx(8**0.5 * (0.82**0.5 - 0.61**0.5))
    assert at.alignment[0] == pytest.approx(0.6 - 0.8)


@some
@given(...)
def test_a_positive_learning_potential_makes_the_plain_gradient_step_help(at: Exact):
    """At the uniform policy pi + t D_n A_n is a policy, and eta rises along it if G_n > 0."""
    at = Exact(at.family, at.family.uniform_policy())
    slope = (at.global_advantage * at.weighted_advantage).sum(axis=(-2, -1))
    size = 1 + np.linalg.norm(at.weighted_advantage)
    assert (slope[at.learning_potential > 1e-6 * size] > 0).all()


@some
@given(step=...)
def test_the_global_advantage_is_the_gradient_of_the_return(step: Step, rounding):
    """Towards any policy: the rise over a short way is the slope in its middle."""
    at, way = step.before, 1e-4 * step.change
    start, middle, end = (Exact(at.family, at.policy + t * way) for t in (0, 0.5, 1))
    slope = (middle.global_advantage * way).sum(axis=(-2, -1))
    rise = end.expected_return - start.expected_return
    third = 1e-12 * abs(at.value).max() / (1 - at.family.gamma) ** 3
    np.testing.assert_allclose(rise, slope, atol=rounding(at) + third)


def test_a_state_that_is_never_visited_has_no_level_of_heterogeneity_but_all_else():
    family = families.chain(agents=2, states=3)
    at = Exact(family, [[1.0, 0.0]] * 3)
    np.testing.assert_array_equal(at.visitation[:, 1:], 0)
    with pytest.raises(InvalidFamily, match=r"agent 0, state 1: the policy does not get there"):
        _ = at.heterogeneity_matrix
    with pytest.raises(ValueError, match=r"Definition 1\) needs rho > 0"):
        _ = at.heterogeneity_level
    assert np.isfinite(at.learning_potential).all()
    np.testing.assert_allclose(at.agent_returns, 1.0)  # 0.1 for ever


@some
@given(...)
def test_in_a_batch_everything_is_what_it_is_alone(at: Exact):
    other = Family(
        at.family.initial, at.family.transitions, -at.family.rewards, 0.75, at.family.weights
    )
    policies = np.stack([at.policy, at.family.uniform_policy()])
    both = Exact(Family.stack([at.family, other]), policies)
    each = [at, Exact(other, policies[1])]
    names = [name for name in dir(Exact) if not name.startswith("_")]
    assert len(names) >= 15
    for name in names:
        for i in range(2):
            np.testing.assert_allclose(
                getattr(both, name)[i], getattr(each[i], name), rtol=1e-12, atol=1e-12, err_msg=name
            )


def test_families_and_policies_broadcast():
    """Three families at two policies each, against six single ones."""
    many = [families.random(agents=2, states=3, actions=2, gamma=0.9, seed=s) for s in range(3)]
    policies = np.random.default_rng(0).dirichlet(np.ones(2), (2, 3))
    grid = Exact(Family.stack(many)[..., None], policies)
    assert grid.expected_return.shape == (3, 2)
    for i, family in enumerate(many):
        for j, policy in enumerate(policies):
            alone = Exact(family, policy)
            np.testing.assert_allclose(grid.expected_return[i, j], alone.expected_return)
            np.testing.assert_allclose(grid.alignment[i, j], alone.alignment)


def test_changing_the_users_policy_later_changes_nothing():
    family = families.chain(agents=2)
    policy = family.uniform_policy()
    at = Exact(family, policy)
    before = at.expected_return
    policy[:] = [1.0, 0.0]
    np.testing.assert_array_equal(at.policy, 0.5)
    assert Exact(family, at.policy).expected_return == before
