"""The argmax in closed form against linear programmes, a search, random policies, and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog, minimize_scalar

from fedkl.tabular import (
    Exact,
    Family,
    Step,
    algorithms,
    best_response,
    families,
    linear_programme,
    objectives,
)
from fedkl.tabular.best_response import Moves
from fedkl.tabular.objectives import Objective

some = settings(max_examples=40, deadline=None)
VERSIONS = [
    objectives.paper,
    objectives.corrected,
    objectives.second_order,
    objectives.second_order_exact,
]


def one(objective, n=0):
    """The objective of one agent."""
    parts = ("policy", "gain", "price", "linear", "quadratic")
    return Objective(**{part: getattr(objective, part)[n] for part in parts})


def drawn(rng, policy_of):
    """An objective of small integers, so that actions, states and slopes tie."""
    S, A = rng.integers(1, 5, 2)
    return Objective(
        policy=policy_of(rng, S, A) if rng.random() < 0.7 else np.eye(A)[rng.integers(A, size=S)],
        gain=rng.integers(-3, 4, (S, A)).astype(float),
        price=rng.integers(0, 4, S).astype(float),
        linear=np.array(float(rng.integers(0, 5))),
        quadratic=np.array(0.0),
    )


def of_a_family(rng, policy_of):
    """An objective of a family; gamma is small, for otherwise nothing moves."""
    N, S, A = rng.integers(1, 5, 3)
    family = families.random(
        agents=N,
        states=S,
        actions=A,
        gamma=rng.choice([0.01, 0.05, 0.1, 0.2]),
        seed=int(rng.integers(10**6)),
        level=rng.choice([0.05, 0.3, 1.0]),
        concentration=rng.choice([1e-3, 1.0]),  # the first is deterministic
    )
    at = Exact(family, policy_of(rng, S, A))
    version = rng.choice([objectives.paper, objectives.corrected, objectives.second_order])
    return replace(one(version(at), rng.integers(N)), quadratic=np.array(0.0))


def most_within(objective, radius):
    """Phi(radius) by another programme than ours: over Pi' itself, and u >= |Pi' - Pi|."""
    S, A = objective.policy.shape
    n, pi = S * A, objective.policy.ravel()
    per_state = np.kron(np.eye(S), np.ones(A))
    eye, zero = np.eye(n), np.zeros((S, n))
    result = linprog(
        np.append(-objective.gain.ravel(), 0.5 * np.repeat(objective.price, A)),
        A_ub=np.block([[eye, -eye], [-eye, -eye], [zero, 0.5 * per_state]]),
        b_ub=np.concatenate([pi, -pi, np.full(S, radius)]),
        A_eq=np.hstack([per_state, zero]),
        b_eq=np.ones(S),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return -result.fun - objective.gain.ravel() @ pi


@pytest.mark.parametrize("draw", [drawn, of_a_family])
def test_the_closed_form_is_as_good_as_the_linear_programme(draw, policy_of):
    """600 cases each: with actions of probability 0, ties, deterministic dynamics and policies."""
    rng = np.random.default_rng(0)
    moved = 0
    for case in range(600):
        h = draw(rng, policy_of)
        ours, theirs = best_response(h), linear_programme.best_response(h)
        assert h(ours) == pytest.approx(float(h(theirs)), abs=1e-9), f"case {case}: {h}"
        for policy in (ours, theirs):
            assert policy.min() >= -1e-12
            np.testing.assert_allclose(policy.sum(axis=-1), 1, atol=1e-12)
        moved += not np.array_equal(ours, h.policy)
    assert 150 < moved < 500


def test_with_a_quadratic_term_it_is_as_good_as_a_search_over_the_radius(policy_of):
    rng = np.random.default_rng(1)
    inside = 0
    for case in range(40):
        at = (drawn if case % 2 else of_a_family)(rng, policy_of)
        h = replace(at, linear=at.linear * (case % 4 > 1), quadratic=np.array(rng.choice([0.3, 3])))

        def lost(radius, h=h):
            return h.linear * radius + h.quadratic * radius**2 - most_within(h, radius)

        found = minimize_scalar(lost, bounds=(0, 1), method="bounded", options={"xatol": 1e-7})
        ours = best_response(h)
        assert h(ours) == pytest.approx(max(-found.fun, 0.0, -lost(1.0)), abs=1e-6), f"{case}: {h}"
        inside += 0 < abs(ours - h.policy).sum(axis=-1).max() / 2 < 1
    assert inside > 10


@pytest.mark.parametrize("version", VERSIONS)
@some
@given(step=...)
def test_no_other_policy_is_better(version, step: Step, rounding):
    h = version(step.before)
    best = h(best_response(h))
    for policy in (*step.local, step.before.family.uniform_policy()):
        for share in (0.01, 0.3, 1.0):
            candidate = h.policy + share * (policy - h.policy)
            assert (h(candidate) <= best + rounding(step.before)).all()


@pytest.mark.parametrize("version", VERSIONS)
@some
@given(at=...)
def test_it_is_a_policy_and_loses_nothing(version, at: Exact):
    h = version(at)
    policy = best_response(h)
    assert (policy >= 0).all()
    np.testing.assert_allclose(policy.sum(axis=-1), 1, atol=1e-14)
    assert (h(policy) >= -1e-12).all()


def objective_of(policy, gain, price, linear=0.0, quadratic=0.0):
    numbers = (np.array(x, dtype=float) for x in (policy, gain, price, linear, quadratic))
    return Objective(*numbers)


def test_three_actions_by_hand():
    """Worth of the worst action 3 - 1, of the next 2 - 1; the best stays where it is."""
    h = objective_of([[0.2, 0.5, 0.3]], [[1.0, 4.0, 2.0]], [1.0])
    np.testing.assert_allclose(best_response(h), [[0.0, 1.0, 0.0]])
    assert h(best_response(h)) == pytest.approx(0.2 * 2 + 0.3 * 1)
    # A slope of 3/2 in all is worth it for the worst action only.
    np.testing.assert_allclose(best_response(replace(h, linear=np.array(1.5))), [[0, 0.7, 0.3]])
    # 2 - 2 C tau = 0 at tau = 1/10, and 1 - 2 C tau = 0 at tau = 1/4, after the worst is used up.
    curved = best_response(replace(h, quadratic=np.array(10.0)))
    np.testing.assert_allclose(curved, [[0.1, 0.6, 0.3]])
    curved = best_response(replace(h, quadratic=np.array(2.0)))
    np.testing.assert_allclose(curved, [[0.0, 0.75, 0.25]])


def test_one_radius_binds_all_states():
    """Slopes 4 + 2 up to 1/4, then 4 alone: with 5 to pay only the first part is worth it."""
    h = objective_of([[0.5, 0.5], [0.75, 0.25]], [[4.0, 0.0], [2.0, 0.0]], [0.0, 0.0], linear=5.0)
    np.testing.assert_allclose(best_response(h), [[0.75, 0.25], [1.0, 0.0]])
    assert h(best_response(h)) == pytest.approx((6 - 5) / 4)


@pytest.mark.parametrize(
    "h",
    [
        objective_of([[0.3, 0.7]], [[2.0, 0.0]], [2.0]),  # a price that eats the gain
        objective_of([[0.3, 0.7]], [[2.0, 0.0]], [0.0], linear=2.0),
        objective_of([[0.3, 0.7]], [[2.0, 2.0]], [0.0]),  # a tie
        objective_of([[1.0, 0.0]], [[2.0, 0.0]], [0.0]),  # nothing left to move
        objective_of([[1.0]], [[2.0]], [0.0]),
    ],
)
def test_it_stays_exactly_where_nothing_is_gained(h):
    """Of several maximisers it returns pi, to the last bit."""
    np.testing.assert_array_equal(best_response(h), h.policy)


@pytest.mark.parametrize("version", VERSIONS)
@some
@given(at=...)
def test_moves_within_a_radius_are_worth_what_they_say(version, at: Exact):
    h = version(at)
    free = replace(h, linear=0 * h.linear, quadratic=0 * h.quadratic)
    moves = Moves.of(h)
    size = 1e-12 * (1 + abs(h.gain).max())
    gains = []
    for radius in np.linspace(0, 1, 6):
        radii = np.full(h.linear.shape, radius)
        policy = moves.policy(radii)
        assert (abs(policy - h.policy).sum(axis=-1) / 2 <= radius + 1e-15).all()
        gains.append(moves.gain(radii))
        np.testing.assert_allclose(gains[-1], free(policy), atol=size)
    assert (np.diff(gains, axis=0) >= -size).all()
    assert (np.diff(gains, n=2, axis=0) <= size).all()  # concave


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_gives_what_each_objective_gives_alone(version, batch):
    policies = np.random.default_rng(0).dirichlet(np.ones(4), (4, 10))
    together = best_response(version(Exact(batch, policies)))
    for i in range(4):
        alone = version(Exact(batch[i], policies[i]))
        np.testing.assert_allclose(together[i], best_response(alone), atol=1e-13)
        for n in range(len(alone.gain)):
            np.testing.assert_array_equal(best_response(one(alone, n)), best_response(alone)[n])


@pytest.mark.parametrize("agent", range(3))
def test_the_closed_form_is_as_good_as_the_linear_programme_on_a_hundred_states(agent):
    family = families.random(
        agents=3, states=100, actions=5, gamma=0.05, seed=1, level=0.002, concentration=0.1
    )
    policy = np.random.default_rng(0).dirichlet(np.ones(5), 100)
    h = objectives.paper(Exact(family, policy))[agent]
    closed, programme = best_response(h), linear_programme.best_response(h)
    assert h(closed) > 0
    assert h(closed) == pytest.approx(h(programme), abs=1e-9)


@pytest.mark.parametrize("version", [objectives.second_order, objectives.second_order_exact])
def test_rounding_moves_nobody(version):
    """All rewards are 0.1: advantages are 0, and computed as some 1e-17."""
    drawn = families.random(agents=3, states=5, actions=3, gamma=0.9, seed=0)
    family = Family(drawn.initial, drawn.transitions, 0 * drawn.rewards + 0.1, gamma=0.9)
    at = Exact(family, np.random.default_rng(0).dirichlet(np.ones(3), 5))
    objective = version(at)
    np.testing.assert_array_equal(best_response(objective), objective.policy)
    step = algorithms.line_search(at, family.weights)
    np.testing.assert_array_equal(step.policy, at.policy)
