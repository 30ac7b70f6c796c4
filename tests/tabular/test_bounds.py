"""Every inequality of the paper and of ours, their order, and where they are attained."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.tabular import Exact, Family, Step, bounds, constants
from fedkl.tabular.distances import frobenius, span

some = settings(max_examples=40, deadline=None)

LOCAL = [bounds.cpo_printed, bounds.cpo_corrected, bounds.second_order_local]
THEOREM_1 = [
    bounds.theorem_1_span,
    bounds.theorem_1_rows,
    bounds.theorem_1_sqrt2,
    bounds.theorem_1,
]
GLOBAL = [
    bounds.anchored_corollary_2,
    bounds.anchored,
    bounds.weighted,
    bounds.weighted_delta,
    bounds.corollary_2,
    bounds.corollary_2_corrected,
    bounds.second_order,
    bounds.second_order_exact,
]
OTHERS = [
    bounds.theorem_1_l2,
    bounds.corollary_1,
    bounds.anchored_theorem_1,
    bounds.anchored_equation_23,
]


def two_bandits():
    """A_1 = (1, -1), A_2 = (3, -3), rho = 2; M = (4, -4), B_1 = -B_2 = (1, -1)."""
    rewards = [[[1.0, -1.0]], [[3.0, -3.0]]]
    family = Family(np.ones((2, 1)), np.ones((2, 1, 2, 1)), rewards, gamma=0.5)
    return Exact(family, family.uniform_policy())


def detour(gamma, back=0.25):
    """A step that leaves its way for a place where the new policy is worse, but pi never was.

    State 0 leads to 1 or (seldom) to 2, both for ever. In state 2 the new policy loses 1 a step.
    """
    to = np.eye(3)
    transitions = [[[to[1], to[2]], [to[1], to[1]], [to[2], to[2]]]]
    family = Family([[1.0, 0, 0]], transitions, [[[0.0, 0], [0, 0], [0, -1]]], gamma)
    return Step(Exact(family, [[1.0, 0]] * 3), [[[1 - back, back], [1, 0], [0, 1]]])


@pytest.mark.parametrize("bound", LOCAL + THEOREM_1 + OTHERS + GLOBAL)
@some
@given(step=...)
def test_holds(bound, step: Step, rounding):
    assert (bound(step).slack >= -rounding(step.before)).all()


@some
@given(step=...)
def test_trpo_holds(step: Step, rounding):
    """Half-way to the local policies, where KL is finite."""
    half = Step(step.before, (step.local + step.before.policy) / 2)
    assert (bounds.trpo(half).slack >= -rounding(step.before)).all()


def test_trpo_holds_where_kl_is_infinite_and_nothing_is_at_stake():
    family = Family([[1.0]], np.ones((1, 1, 2, 1)), [[[1.0, 1.0]]], gamma=0.5)
    step = Step(Exact(family, [[0.5, 0.5]]), [[[1.0, 0.0]]])
    assert (bounds.trpo(step).slack >= 0).all()


@some
@given(step=...)
def test_the_second_order_lemma_holds_on_both_sides(step: Step, rounding):
    rise = step.own_return - step.before.agent_returns
    charge = bounds.second_order_charge(step)
    assert (abs(rise - step.policy_advantage) <= charge + rounding(step.before)).all()


@some
@given(step=...)
def test_the_second_order_bound_of_the_exact_version_holds_on_both_sides(step: Step, rounding):
    rise = step.global_return - step.before.expected_return
    curved = constants.curvature(step.before) * step.tv_max**2
    assert (abs(rise - step.global_policy_advantage) <= curved + rounding(step.before)).all()


@some
@given(...)
def test_the_charge_of_the_lemma_is_at_most_the_curvature(step: Step):
    """max_s[TV span A] E_rho[TV] <= sigma TV_max^2 / (1 - gamma)."""
    family, charges = step.before.family, []
    for local in step.local:
        charges.append(family.weights @ bounds.second_order_charge(Step(step.before, local)))
    curved = constants.curvature(step.before) * step.tv_max**2
    assert (np.array(charges) <= curved * (1 + 1e-12) + 1e-12).all()


@some
@given(...)
def test_the_forms_of_theorem_1_are_in_order(step: Step):
    penalties = np.stack([bound(step).penalty for bound in THEOREM_1])
    size = 1e-12 * (1 + penalties.max())
    assert (np.diff(penalties, axis=0) >= -size).all()


@some
@given(...)
def test_the_l2_form_is_at_most_the_root_two_form(step: Step):
    l2, sqrt2 = bounds.theorem_1_l2(step).penalty, bounds.theorem_1_sqrt2(step).penalty
    assert (l2 <= sqrt2 + 1e-12 * (1 + sqrt2)).all()


@some
@given(...)
def test_the_constants_of_theorem_1_are_what_their_names_say(step: Step):
    printed, sqrt2 = bounds.theorem_1(step).penalty, bounds.theorem_1_sqrt2(step).penalty
    np.testing.assert_allclose(sqrt2 * np.sqrt(2), printed)
    np.testing.assert_allclose(printed, 2 * step.before.heterogeneity_level * step.tv_expected)


@some
@given(at=...)
def test_the_l2_form_is_attained_against_heterogeneity(at: Exact, rounding):
    """At the uniform policy, by pi_n = pi - t D_n^-1 B_n."""
    at = Exact(at.family, at.family.uniform_policy())
    B = at.heterogeneity_matrix
    direction = B / at.visitation[..., None]
    t = 0.5 / at.family.actions / (1 + abs(direction).max())
    bound = bounds.theorem_1_l2(Step(at, at.policy - t * direction))
    np.testing.assert_allclose(bound.penalty, t * frobenius(B) ** 2, atol=1e-12)
    np.testing.assert_allclose(bound.slack, 0, atol=rounding(at))


@some
@given(at=...)
def test_the_span_form_is_attained_by_moving_from_the_largest_to_the_smallest(at: Exact, rounding):
    at = Exact(at.family, at.family.uniform_policy())
    A, DB = at.family.actions, at.weighted_heterogeneity
    change = (np.eye(A)[DB.argmin(axis=-1)] - np.eye(A)[DB.argmax(axis=-1)]) / A
    bound = bounds.theorem_1_span(Step(at, at.policy + change))
    np.testing.assert_allclose(bound.slack, 0, atol=rounding(at))


@some
@given(...)
def test_where_heterogeneity_exceeds_advantage_the_bound_promises_nothing(step: Step):
    """All that Corollary 1 shows; the objective may still rise (see test_exact.py)."""
    at = step.before
    exceeds = frobenius(at.advantage) <= at.heterogeneity_level
    promised = bounds.theorem_1_l2(step).right
    assert (promised[exceeds] <= 1e-11 * (1 + abs(at.value).max()) / (1 - at.family.gamma)).all()


@some
@given(...)
def test_the_printed_cpo_constant_is_one_horizon_too_large(step: Step):
    printed, corrected = bounds.cpo_printed(step), bounds.cpo_corrected(step)
    np.testing.assert_allclose(printed.penalty * (1 - step.before.family.gamma), corrected.penalty)


@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9, 0.99])
def test_the_corrected_constants_are_needed_up_to_a_factor_of_two_at_every_gamma(gamma):
    """The detour loses 1/4 gamma / (1 - gamma), of which pi's states say nothing."""
    step = detour(gamma)
    for bound in (bounds.cpo_corrected, bounds.second_order_local):
        np.testing.assert_allclose(bound(step).gap, 0.25 * gamma / (1 - gamma))
        np.testing.assert_allclose(bound(step).looseness, 2)
    np.testing.assert_allclose(bounds.cpo_printed(step).looseness, 2 / (1 - gamma))


@some
@given(...)
def test_the_corrected_form_of_corollary_2_is_the_tighter_one(step: Step):
    """Its constant is smaller by 2 / (1 - gamma)."""
    at, scale = step.before, 2 / (1 - step.before.family.gamma)
    np.testing.assert_allclose(
        constants.corrected_constant(at) * scale, constants.paper_constant(at)
    )
    printed, corrected = bounds.corollary_2(step), bounds.corollary_2_corrected(step)
    assert (corrected.penalty <= printed.penalty).all()
    np.testing.assert_array_equal(corrected.surrogate, printed.surrogate)


@settings(max_examples=40, deadline=None)
@given(step=..., weights=st.lists(st.integers(0, 3), min_size=3, max_size=3))
@pytest.mark.parametrize("bound", GLOBAL)
def test_holds_for_the_servers_average_with_any_weights(bound, step: Step, weights, rounding):
    """Theorem 2; agents may have weight 0."""
    w = np.array(weights[: step.before.family.agents], dtype=float)
    w[0] += w.sum() == 0
    average = bounds.averaged(step, w / w.sum(), bound(step))
    assert average.slack >= -rounding(step.before)


@some
@given(...)
def test_advantage_spans_at_most_the_mixture_and_the_level(at: Exact):
    """Why the paper's algorithm never moves: span A_n <= span(A_n + B_n) + sqrt(2) ||B_n||_F."""
    A, B = at.advantage, at.heterogeneity_matrix
    level = np.sqrt(2) * at.heterogeneity_level[..., None]
    assert (span(A) <= span(A + B) + level + 1e-11 * (1 + abs(A).max())).all()


@some
@given(...)
def test_identical_agents_pay_for_no_heterogeneity(at: Exact):
    first = [array[:1] for array in (at.family.initial, at.family.transitions, at.family.rewards)]
    iid = Exact(Family(*(np.concatenate([x] * 2) for x in first), at.family.gamma), at.policy)
    np.testing.assert_array_equal(constants.delta(iid, constants.paper_constant(iid)), 0)
    np.testing.assert_allclose(constants.alpha(iid), 0, atol=1e-11 * (1 + abs(at.value).max()))


def test_constants_of_bandits_by_hand():
    """At gamma 1/2: 4 eps gamma / (1-gamma)^2 = 8 eps, 2 gamma sigma / (1-gamma)^2 = 4 sigma."""
    at = two_bandits()
    c = constants.paper_constant(at)
    np.testing.assert_allclose(c, [8, 24])
    np.testing.assert_allclose(constants.corrected_constant(at), [2, 6])
    np.testing.assert_allclose(constants.alpha(at), [2 * 2**0.5] * 2)
    np.testing.assert_allclose(constants.beta(at, c), 16)
    np.testing.assert_allclose(constants.delta(at, c), [0, 0])
    np.testing.assert_allclose(constants.curvature(at), (4 * 2 + 4 * 6) / 2)


def test_delta_by_hand():
    """Nobody moves, so rho = 2 mu, and TV(rho_1, rho_2) = 2 .8. c = (8, 24), q = (1/4, 3/4)."""
    still = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    rewards = np.array([1.0, 3.0])[:, None, None] * np.array([1.0, -1.0]) * np.ones((2, 2, 2))
    family = Family([[0.9, 0.1], [0.1, 0.9]], still, rewards, 0.5, [0.25, 0.75])
    at = Exact(family, family.uniform_policy())
    delta = constants.delta(at, constants.paper_constant(at))
    np.testing.assert_allclose(delta, [2 * 0.75 * 24 * 1.6, 2 * 0.25 * 8 * 1.6])


def test_anchored_constants_by_hand():
    """Nobody moves: rho = 2 mu = (1.8, .2), (.2, 1.8); rho_bar = (.52, 1.48) with q = (.2, .8).

    A_1 = (1, -1) and A_2 = (3, -3) in both states. M = q_1 D_1 A_1 + q_2 D_2 A_2 is .36 + .48 = .84
    and .04 + 4.32 = 4.36, D_1 A_1 is 1.8 and .2, D_2 A_2 is .6 and 5.4, each times (1, -1); twice
    the differences are the spans 1.92, 8.32 of agent 1 and .48, 2.08 of agent 2.
    """
    still = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    rewards = np.array([1.0, 3.0])[:, None, None] * np.array([1.0, -1.0]) * np.ones((2, 2, 2))
    family = Family([[0.9, 0.1], [0.1, 0.9]], still, rewards, 0.5, [0.2, 0.8])
    at = Exact(family, family.uniform_policy())
    np.testing.assert_allclose(at.federation_visitation, [0.52, 1.48])
    alphas = [max(1.92 / 0.52, 8.32 / 1.48), max(0.48 / 0.52, 2.08 / 1.48)]
    np.testing.assert_allclose(constants.anchored_alpha(at), alphas)
    np.testing.assert_allclose(constants.anchored_beta(at), 2 * 3 * 0.5 / 0.5)
    # An agent without a weight does not count, however much it may gain.
    without = Exact(Family(*family_of(at), [1.0, 0.0]), at.policy)
    np.testing.assert_allclose(constants.anchored_beta(without), 2 * 1 * 0.5 / 0.5)


def family_of(at):
    return at.family.initial, at.family.transitions, at.family.rewards, at.family.gamma


def test_what_only_an_agent_without_a_weight_visits_cannot_be_charged():
    still = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    family = Family(np.eye(2), still, np.ones((2, 2, 1)) * [1.0, -1.0], 0.5, [1.0, 0.0])
    at = Exact(family, family.uniform_policy())
    with pytest.raises(ValueError, match="agent 1, state 1: no agent with a weight gets there"):
        constants.anchored_alpha(at)
    # Where nobody is, nothing is at stake.
    nobody = Family([[1.0, 0.0]] * 2, still, family.rewards, 0.5)
    np.testing.assert_allclose(
        constants.anchored_alpha(Exact(nobody, at.policy)), [0, 0], atol=1e-12
    )


@some
@given(...)
def test_the_anchored_constant_is_bounded_where_alpha_is_not(at: Exact):
    """span (D_n B_n)(s) <= sum_k q_k rho_k sigma_k + rho_n sigma_n, and rho_n <= rho_bar / q_n."""
    q = at.family.weights
    sigma = at.advantage_span.max(axis=-1)
    most = sigma.max() + np.divide(sigma, q, out=np.full_like(q, np.inf), where=q > 0)
    assert (constants.anchored_alpha(at) <= most * (1 + 1e-9) + 1e-9).all()


def test_weighted_constants_by_hand():
    """As above: rho_bar = (.52, 1.48); max(rho_n, rho_bar) is (1.8, 1.48) and (.52, 1.8)."""
    still = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    rewards = np.array([1.0, 3.0])[:, None, None] * np.array([1.0, -1.0]) * np.ones((2, 2, 2))
    family = Family([[0.9, 0.1], [0.1, 0.9]], still, rewards, 0.5, [0.2, 0.8])
    at = Exact(family, family.uniform_policy())
    np.testing.assert_allclose(at.excess_visitation, [[0, 1.28], [0.32, 0]], atol=1e-12)
    alphas = [max(1.92 / 1.8, 8.32 / 1.48), max(0.48 / 0.52, 2.08 / 1.8)]
    np.testing.assert_allclose(constants.weighted_alpha(at), alphas)
    # Agent 1 changes state 2 by half: E[TV] = .1, E_bar[w TV] = .64.
    local = at.policy.copy()
    local[1] = [1.0, 0.0]
    step = Step(at, np.stack([local, local]))
    np.testing.assert_allclose(step.tv_expected[0], 0.1)
    np.testing.assert_allclose(bounds.weighted_distance(step), [0.64, 0], atol=1e-12)


def test_the_weighted_constant_exists_for_an_agent_that_does_not_count():
    """Where the anchored one does not: agent 2 has weight 0, and is alone in state 2."""
    still = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2, 2))
    family = Family(np.eye(2), still, np.ones((2, 2, 1)) * [1.0, -1.0], 0.5, [1.0, 0.0])
    at = Exact(family, family.uniform_policy())
    np.testing.assert_allclose(constants.weighted_alpha(at), [0, 2], atol=1e-12)


@some
@given(...)
def test_the_weighted_constant_knows_nothing_of_how_many_agents_there_are(at: Exact):
    sigma = at.advantage_span.max(axis=-1)
    assert (constants.weighted_alpha(at) <= (sigma.max() + sigma) * (1 + 1e-9) + 1e-9).all()


@some
@given(...)
def test_anchored_penalties_are_no_less_than_what_they_stand_for(step: Step):
    at = step.before
    span_form, anchored = bounds.theorem_1_span(step), bounds.anchored_theorem_1(step)
    size = 1e-11 * (1 + abs(at.value).max() / (1 - at.family.gamma))
    assert (anchored.penalty >= span_form.penalty - size).all()
    assert (bounds.anchored(step).penalty >= bounds.second_order(step).penalty - size).all()
    by_kl = bounds.anchored_equation_23(step).penalty
    assert (by_kl >= bounds.anchored_corollary_2(step).penalty - size).all()


def test_sides_of_the_bounds_by_hand():
    """A quarter moves to the better action: AA = (1, 3), TV = 1/4, E[TV] = 1/2, eta from 0 to 2."""
    step = Step(two_bandits(), [[0.75, 0.25]])
    first = bounds.theorem_1_span(step)
    np.testing.assert_allclose(first.left, [2, 2])
    np.testing.assert_allclose(first.surrogate, [1, 3])
    np.testing.assert_allclose(first.penalty, [1, 1])  # span (2, -2) / 4
    np.testing.assert_allclose(first.slack, [2, 0], atol=1e-15)
    np.testing.assert_allclose(first.gap, [-1, 1])
    np.testing.assert_allclose(first.looseness, [np.inf, 1])
    np.testing.assert_allclose(bounds.theorem_1(step).penalty, [2**0.5] * 2)
    np.testing.assert_allclose(bounds.second_order(step).right, [1 - 1 - 1, 3 - 1 - 1])
    np.testing.assert_allclose(bounds.second_order_exact(step).right, [2 - 1] * 2)
    np.testing.assert_allclose(bounds.corollary_2(step).left, [2, 2])
    printed, corrected = bounds.corollary_2(step), bounds.corollary_2_corrected(step)
    np.testing.assert_allclose(printed.right, np.array([1, 3]) - (2 * 2**0.5 + 16) / 2)
    np.testing.assert_allclose(corrected.right, np.array([1, 3]) - (2 * 2**0.5 + 4) / 2)


@pytest.mark.parametrize("bound", [bounds.trpo, *LOCAL, *THEOREM_1, *OTHERS, *GLOBAL])
def test_a_batch_gives_what_each_family_gives_alone(bound, batch):
    rng = np.random.default_rng(0)
    policies, local = rng.dirichlet(np.ones(4), (4, 10)), rng.dirichlet(np.ones(4), (4, 5, 10))
    together = bound(Step(Exact(batch, policies), local))
    for i in range(4):
        alone = bound(Step(Exact(batch[i], policies[i]), local[i]))
        for side in ("left", "surrogate", "penalty"):
            np.testing.assert_allclose(getattr(together, side)[i], getattr(alone, side))
