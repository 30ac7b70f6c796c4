"""Random families, the windy grid and the chain: entries by hand, and what differs in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkl.tabular import Exact, Family, families
from fedkl.tabular.families import averaged, chain, random, windy_grid

SIZES = {"agents": 3, "states": 4, "actions": 2, "gamma": 0.9}
PARTS = {"mu": "initial", "P": "transitions", "R": "rewards"}
UP, DOWN, LEFT, RIGHT = range(4)


def differs(array):
    return bool((array != array[:1]).any())


@pytest.mark.parametrize("heterogeneity", ["none", "mu", "P", "R", "all"])
def test_only_what_is_asked_for_differs_between_random_agents(heterogeneity):
    family = random(**SIZES, seed=0, heterogeneity=heterogeneity)
    for what, part in PARTS.items():
        assert differs(getattr(family, part)) is (heterogeneity in (what, "all"))
    assert family.weights.tolist() == [1 / 3] * 3


@pytest.mark.parametrize("heterogeneity", ["mu", "P", "R", "all"])
def test_at_level_zero_random_agents_are_alike(heterogeneity):
    flat = random(**SIZES, seed=0, heterogeneity=heterogeneity, level=0.0)
    none = random(**SIZES, seed=0, heterogeneity="none")
    for part in PARTS.values():
        np.testing.assert_array_equal(getattr(flat, part), getattr(none, part))


def test_families_of_one_seed_share_their_draws():
    """What differs is a mixture of the common draw and of each agent's own."""
    none, everything = (random(**SIZES, seed=0, heterogeneity=h) for h in ("none", "all"))
    for what, part in PARTS.items():
        one = random(**SIZES, seed=0, heterogeneity=what)
        half = random(**SIZES, seed=0, heterogeneity=what, level=0.5)
        np.testing.assert_array_equal(getattr(one, part), getattr(everything, part))
        middle = (getattr(none, part) + getattr(one, part)) / 2
        np.testing.assert_allclose(getattr(half, part), middle, atol=1e-15)


def test_the_seed_determines_a_random_family():
    one, same, other = (random(**SIZES, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.transitions, same.transitions)
    np.testing.assert_array_equal(one.rewards, same.rewards)
    assert (one.transitions != other.transitions).all()


@pytest.mark.parametrize(
    ("concentration", "largest"), [(1e-6, (0.999, 1)), (1.0, (0.4, 0.65)), (1e6, (0.25, 0.26))]
)
def test_concentration_goes_from_deterministic_to_uniform(concentration, largest):
    family = random(**SIZES, seed=0, concentration=concentration)
    low, high = largest
    assert low <= family.transitions.max(axis=-1).mean() <= high


def test_random_transitions_are_uniform_on_the_simplex_at_concentration_one():
    """Then the mean of each is 1/4 and the variance 3/80 (of 3000 rows, so within 2 %)."""
    P = random(agents=30, states=4, actions=25, gamma=0.9, seed=0).transitions
    np.testing.assert_allclose(P.mean(axis=(0, 1, 2)), 0.25, atol=0.01)
    np.testing.assert_allclose(P.var(axis=(0, 1, 2)), 3 / 80, rtol=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heterogeneity": "everything"}, r"heterogeneity must be one of none, mu, P, R, all, not"),
        ({"level": 1.5}, r"level must be between 0 and 1, not 1\.5"),
        ({"level": np.nan}, r"level must be between 0 and 1, not nan"),
        ({"concentration": 0.0}, r"concentration must be finite and at least 1e-06, not 0"),
        ({"concentration": np.inf}, r"concentration must be finite and at least 1e-06, not inf"),
        ({"agents": 0}, r"a family needs at least one of agents, not 0"),
        ({"actions": -1}, r"a family needs at least one of actions, not -1"),
        ({"gamma": 1.0}, r"gamma must be a number strictly between 0 and 1"),
    ],
)
def test_what_no_random_family_can_be_made_of_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        random(**(SIZES | {"seed": 0} | change))


def test_a_windless_grid_by_hand():
    """3 x 4 cells, the goal is cell 7; without slip a move goes where it should, or stays."""
    P = windy_grid(agents=1, rows=3, columns=4, level=0.0, slip=0.0).transitions[0]
    to = P.argmax(axis=-1)
    assert ((P == 0) | (P == 1)).all()
    assert to[0].tolist() == [0, 4, 0, 1]  # a corner: up and left go nowhere
    assert to[5].tolist() == [1, 9, 4, 6]
    assert to[7].tolist() == [7, 7, 7, 7]  # the goal is not left again


def test_slip_and_wind_by_hand():
    """From cell 5 to the right, slip .2: 6 with .8 + .05, 1, 9 and 4 with .05 each. Wind 1/2."""
    calm, windy = (
        windy_grid(agents=2, rows=3, columns=4, level=level, slip=0.2) for level in (0.0, 0.5)
    )
    expected = np.zeros(12)
    expected[[6, 1, 9, 4]] = [0.85, 0.05, 0.05, 0.05]
    np.testing.assert_allclose(calm.transitions[0, 5, RIGHT], expected, atol=1e-15)
    # The last agent's wind lifts half of what is not in the top row or column 0: 6 to 2, 9 to 5.
    lifted = np.zeros(12)
    lifted[[6, 2, 1, 9, 5, 4]] = [0.425, 0.425, 0.05, 0.025, 0.025, 0.05]
    np.testing.assert_allclose(windy.transitions[1, 5, RIGHT], lifted, atol=1e-15)
    # Seen from column 0, the wind reaches only who moves out of it.
    np.testing.assert_allclose(
        windy.transitions[1, 4, :, [0, 4, 8]], calm.transitions[1, 4, :, [0, 4, 8]]
    )


def test_the_goal_pays_when_it_is_entered_and_not_when_one_is_there():
    family = windy_grid(agents=2, rows=3, columns=4, level=0.0, slip=0.0)
    assert family.rewards[0, 6].tolist() == [0, 0, 0, 1]
    assert family.rewards[0, 3].tolist() == [0, 1, 0, 0]
    assert not family.rewards[:, 7].any()


@pytest.mark.parametrize("rows", [3, 5])
def test_the_first_and_the_last_agents_winds_are_opposite(rows):
    """Upside down, with up and down exchanged, the first agent's grid is the last one's."""
    family = windy_grid(agents=3, rows=rows, columns=4)
    flip = np.arange(rows * 4).reshape(rows, 4)[::-1].ravel()
    first, last = family.transitions[0], family.transitions[2]
    mirrored = first[np.ix_(flip, [DOWN, UP, LEFT, RIGHT], flip)]
    np.testing.assert_allclose(mirrored, last, atol=1e-15)
    assert (first != last).any()
    calm = windy_grid(agents=1, rows=rows, columns=4, level=0.0)
    np.testing.assert_allclose(family.transitions[1], calm.transitions[0])


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_grids_of_every_size_are_families(agents, rows, columns, level, slip):
    """And as the goal pays 1 once, no value exceeds 1."""
    family = windy_grid(agents=agents, rows=rows, columns=columns, level=level, slip=slip)
    assert (family.states, family.actions) == (rows * columns, 4)
    np.testing.assert_allclose(family.transitions.sum(axis=-1), 1, atol=1e-14)
    value = Exact(family, family.uniform_policy()).value
    assert ((value >= -1e-12) & (value <= 1 + 1e-12)).all()


@pytest.mark.parametrize("make", [windy_grid, chain])
def test_at_level_zero_there_is_no_heterogeneity_and_above_there_is(make):
    identical, unlike = (make(agents=3, level=level) for level in (0.0, 0.5))
    level = Exact(identical, identical.uniform_policy()).heterogeneity_level
    np.testing.assert_allclose(level, 0, atol=1e-10)
    assert (Exact(unlike, unlike.uniform_policy()).heterogeneity_level > 1e-3).all()


def test_the_chain_by_hand():
    family = chain(agents=3, states=4, level=1.0)
    assert family.initial.tolist() == [[1, 0, 0, 0]] * 3
    for n, success in enumerate([0.3, 0.6, 0.9]):
        P = family.transitions[n]
        assert P[:, 0].argmax(axis=-1).tolist() == [0, 0, 1, 2]  # left always succeeds
        np.testing.assert_allclose(P[1, 1], [0, 1 - success, success, 0])
        np.testing.assert_allclose(P[3, 1], [0, 0, 0, 1])
    assert family.rewards[0].tolist() == [[0.1, 0.1], [0, 0], [0, 0], [1, 1]]


def test_always_going_left_never_leaves_the_left_end():
    family = chain(agents=2, gamma=0.9)
    at = Exact(family, np.eye(2)[np.zeros(6, dtype=int)])
    np.testing.assert_allclose(at.visitation, 10 * np.eye(6)[[0, 0]], atol=0)
    with pytest.raises(ValueError, match=r"agent 0, state 1: .* \(rho = 0"):
        _ = at.heterogeneity_matrix


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (windy_grid, {"slip": -0.1}, r"slip must be between 0 and 1, not -0\.1"),
        (windy_grid, {"rows": 0}, r"a family needs at least one of rows, not 0"),
        (windy_grid, {"level": 2}, r"level must be between 0 and 1, not 2"),
        (chain, {"level": -1}, r"level must be between 0 and 1, not -1"),
        (chain, {"states": 1}, r"states"),
        (chain, {"agents": 0}, r"a family needs at least one of agents, not 0"),
    ],
)
def test_what_no_world_can_be_made_of_is_refused(make, change, message):
    with pytest.raises(ValueError, match=message):
        make(**({"agents": 2} | change))


@settings(max_examples=30, deadline=None)
@given(...)
def test_the_averaged_mdp_has_the_weighted_means(family: Family):
    mean = averaged(Family.stack([family, family]))
    assert (mean.batch, mean.agents) == ((2,), 1)
    for part in PARTS.values():
        expected = np.tensordot(family.weights, getattr(family, part), axes=1)
        np.testing.assert_allclose(getattr(mean, part)[1, 0], expected, atol=1e-15)
    np.testing.assert_array_equal(mean.gamma, family.gamma)


def test_if_only_rewards_differ_the_averaged_mdps_return_is_eta():
    family = random(**SIZES, seed=0, heterogeneity="R")
    policy = np.random.default_rng(0).dirichlet(np.ones(2), 4)
    mean = Exact(families.averaged(family), policy).expected_return
    assert mean == pytest.approx(float(Exact(family, policy).expected_return))
