"""Anchors: where they come from, what they charge for, and how c_a follows what they measure."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedkl
from fedkl import cli
from fedkl.algorithms import Coefficient, FedKLAnchored, Measured
from fedkl.algorithms.fedkl_anchored import BLOCKS, GIVEN_UP, POOL, AnchorPool, Anchors
from fedkl.core.errors import UserError
from fedkl.learning.policy import Policy, personal_part
from fedkl.learning.policy_optimisation import at_step, objective
from fedkl.learning.settings import LearnerSettings, Sharing
from fedkl.learning.statistics import Moments, of_batch
from fedkl.worlds import Chain

KEY = jax.random.key(7)
FEATURES = Chain.observation_size

# Five features: two that go together, two that go apart, and one that never varies.
MIXED = np.array(
    [
        [2.0, 1.5, 0.0, 0.0, 0.0],
        [0.0, 0.5, 0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, -3.0, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
    ]
)
CENTRE = np.array([1.0, -2.0, 10.0, 0.0, 4.0])
SEEN = (np.random.default_rng(0).normal(size=(500, 5)) @ MIXED + CENTRE).astype(np.float32)


def known(x=SEEN, products=True):
    return of_batch(jnp.asarray(x), jnp.ones(len(x), bool), products)


@pytest.fixture(scope="module")
def discrete():
    """A policy of two actions on five features."""
    settings = LearnerSettings(hidden=(3,), output_scale=1.0)
    return Policy(Chain(), settings, jax.random.key(1))


@pytest.fixture
def drawn(hand, discrete):
    """All anchors of an iteration, one in each row."""

    def prepare(algorithm, moments, clip=5.0, shared=(), key=KEY):
        now = hand.now()._replace(
            learner=LearnerSettings(observation_clip=clip),
            previous_policy=discrete,
            global_policy=discrete,
            server_state=shared,
            statistics=moments,
        )
        return algorithm.prepare(now, key)

    return prepare


def rows(anchors):
    return np.asarray(anchors.states).reshape(-1, FEATURES)


# Where anchors come from.


def test_anchors_have_the_mean_and_the_covariance_of_all_observations(drawn):
    """16,384 draws: a correlation that is estimated from them is off by 1/128 or less, usually."""
    states = rows(drawn(FedKLAnchored(anchors_per_step=256), known(), clip=100.0))
    assert len(states) == BLOCKS * 256
    observed = states * SEEN.std(axis=0) + SEEN.mean(axis=0)
    np.testing.assert_allclose(observed.mean(axis=0), SEEN.mean(axis=0), atol=0.15)
    scale = np.outer(*2 * [SEEN.std(axis=0) + 1e-9])
    np.testing.assert_allclose(
        np.cov(observed, rowvar=False) / scale, np.cov(SEEN, rowvar=False) / scale, atol=0.05
    )


def test_a_feature_that_never_varied_stays_at_its_mean(drawn):
    assert not rows(drawn(FedKLAnchored(), known()))[:, 4].any()


def test_each_feature_of_an_anchor_is_normal(drawn):
    states = rows(drawn(FedKLAnchored(), known(), clip=100.0))
    for feature in range(4):
        assert stats.kstest(states[:, feature], "norm").pvalue > 1e-3


def test_with_deviations_alone_features_are_independent(drawn):
    algorithm = FedKLAnchored(anchors="diagonal", anchors_per_step=256)
    states = rows(drawn(algorithm, known(products=False)))
    np.testing.assert_allclose(np.cov(states, rowvar=False), np.diag([1, 1, 1, 1, 0]), atol=0.05)
    # In truth the first two go together, and the next two apart.
    assert np.corrcoef(SEEN[:, :4], rowvar=False)[[0, 2], [1, 3]] == pytest.approx(
        [0.95, -0.95], abs=0.02
    )


def test_anchors_are_clipped_like_observations(drawn):
    """Of a normal, all but 68 per cent lie beyond 1."""
    states = rows(drawn(FedKLAnchored(), known(), clip=1.0))
    assert np.abs(states).max() == 1
    beyond = (np.abs(states[:, :4]) == 1).mean()
    assert beyond == pytest.approx(2 * stats.norm.sf(1), abs=0.03)


def test_before_anybody_has_seen_anything_the_anchor_is_the_origin(drawn):
    nothing = jax.tree.map(jnp.zeros_like, known())
    assert not rows(drawn(FedKLAnchored(), nothing)).any()


def test_every_iteration_draws_anew_and_a_key_repeats_itself(drawn):
    one, again, other = (
        rows(drawn(FedKLAnchored(), known(), key=jax.random.key(k))) for k in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one[:, :4] != other[:, :4]).mean() > 0.99


def test_moments_that_are_no_covariance_give_numbers(drawn):
    """Of medians, three features may all go apart from each other, which no data do."""
    impossible = Moments(jnp.array(10.0), jnp.zeros(5), jnp.full(5, 10.0), jnp.full(10, -10.0))
    assert np.isfinite(rows(drawn(FedKLAnchored(), impossible))).all()


def test_what_the_global_policy_says_is_at_hand_for_each_anchor(drawn, discrete):
    anchors = drawn(FedKLAnchored(anchors_per_step=3), known())
    assert anchors.states.shape == (BLOCKS, 3, FEATURES)
    assert anchors.broadcast.shape == (BLOCKS, 3, 2)
    np.testing.assert_allclose(
        anchors.broadcast[5, 2], discrete.network(anchors.states[5, 2]), rtol=1e-5
    )


def test_products_are_kept_and_observations_sampled_only_where_they_are_used():
    asks = {how: FedKLAnchored(anchors=how) for how in ("normal", "diagonal", "shared")}
    assert [a.needs_covariance for a in asks.values()] == [True, False, False]
    assert [a.observations_sent for a in asks.values()] == [0, 0, GIVEN_UP]


# What they charge for.


def anchored_at(hand, numbers, c_a=1.0, step=0):
    """Hooks look at pi = N(s/2 + 1/2, 1) and pi^t = N(-s, 2^2), on two anchors for each step."""
    states = jnp.asarray(numbers, float).reshape(BLOCKS, 2, 1)
    broadcast = hand.broadcast.network(states)
    return hand.at(step=step, c_a=c_a)._replace(prepared=Anchors(states, broadcast))


def test_the_penalty_is_c_a_times_the_mean_kl_on_the_anchors_of_the_step(hand):
    """KL(pi^t || pi) = -log 2 + (4 + (3 s / 2 + 1/2)^2) / 2 - 1/2: in states 3 and -1 that is
    14 - log 2 and 2 - log 2. Step 67 takes the fourth block of 64."""
    numbers = np.zeros((BLOCKS, 2))
    numbers[3] = [3.0, -1.0]
    at = anchored_at(hand, numbers, c_a=0.25, step=67)
    assert float(FedKLAnchored().penalty(at)) == pytest.approx(0.25 * (8 - math.log(2)), rel=1e-5)
    elsewhere = anchored_at(hand, numbers, c_a=0.25, step=66)
    # In state 0: (4 + 1/4) / 2.
    assert float(FedKLAnchored().penalty(elsewhere)) == pytest.approx(
        0.25 * (2.125 - 0.5 - math.log(2)), rel=1e-5
    )


def test_where_the_client_is_does_not_matter(hand):
    at = anchored_at(hand, np.ones((BLOCKS, 2)))
    away = at._replace(batch=at.batch._replace(observation=100 * at.batch.observation))
    assert float(FedKLAnchored().penalty(at)) == float(FedKLAnchored().penalty(away))


@pytest.fixture(params=["gaussian", "categorical"])
def case(request, hand, normal, discrete):
    """A policy, and a penalty at any policy for pi^t = that policy, whose anchors are some."""
    policy = {"gaussian": normal(0.5, 0.25, 0.5), "categorical": discrete}[request.param]
    inputs = policy.network.weights[0].shape[0]
    states = jax.random.normal(KEY, (BLOCKS, 4, inputs))
    anchors = Anchors(states, policy.network(states))

    def penalty(other):
        at = hand.at(c_a=1.0)._replace(prepared=anchors, policy=other, global_policy=policy)
        return FedKLAnchored().penalty(at)

    return policy, jax.jit(penalty)


def test_at_the_global_policy_the_penalty_and_its_gradient_are_0(case):
    policy, penalty = case
    assert float(penalty(policy)) == pytest.approx(0, abs=1e-6)
    for leaf in jax.tree.leaves(jax.grad(penalty)(policy)):
        np.testing.assert_allclose(leaf, 0, atol=1e-6)


def test_elsewhere_the_penalty_pulls_back_and_more_so_the_further(case):
    """Against its gradient the penalty falls, and the way leads to pi^t."""
    policy, penalty = case
    found = []
    for size in (0.1, 0.2):
        moved = jax.tree.map(lambda x, size=size: x + size, policy)
        gradient = jax.grad(penalty)(moved)
        back = jax.tree.map(lambda m, g: m - 0.01 * g, moved, gradient)
        assert float(penalty(back)) < float(penalty(moved))
        towards = sum(
            float(jnp.vdot(g, m - p))
            for g, m, p in zip(*map(jax.tree.leaves, (gradient, moved, policy)), strict=True)
        )
        assert towards > 0
        found.append(float(penalty(moved)))
    assert found[1] > 2 * found[0] > 0


def test_it_is_what_is_taken_away_from_h(hand):
    prepared = anchored_at(hand, np.zeros((BLOCKS, 2))).prepared
    now = hand.now(c_a=2.0, c2=1.0)._replace(prepared=prepared)
    h = objective(FedKLAnchored(), at_step(now, hand.policy, hand.batch, 0))
    expected = hand.gain - hand.kl_local - 2 * (2.125 - 0.5 - math.log(2))
    assert float(h) == pytest.approx(expected, rel=1e-5)


# How c_a follows.


@pytest.fixture
def settled(hand, normal):
    """c_a after a round from N(0, 1) to N(m, 1), wherever that is: KL is m^2 / 2."""

    def after(algorithm, c_a, kl, **more):
        moments = of_batch(jnp.array([[0.0], [1.0]]), jnp.ones(2, bool), True)
        ended = hand.ended(
            coefficients={"c_a": jnp.array(c_a), "c2": jnp.array(7.0)},
            policy=normal(0.0, math.sqrt(2 * kl), 1.0),
            global_policy=normal(0.0, 0.0, 1.0),
            statistics=moments,
            **more,
        )
        coefficients = algorithm.adapt_after_round(ended)
        assert float(coefficients["c2"]) == 7
        return float(coefficients["c_a"])

    return after


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.0, 0.5), (0.27, 0.5), (0.275, 1), (0.3, 1), (0.329, 1), (0.331, 2)]
)
def test_c_a_halves_and_doubles_around_d_anchor(settled, kl, factor):
    assert settled(FedKLAnchored(d_anchor=0.3), 0.5, kl) == pytest.approx(0.5 * factor)


def test_c_a_stays_within_its_bounds(settled):
    algorithm = FedKLAnchored(d_anchor=0.3, c_a_bounds=(0.1, 2.0))
    assert settled(algorithm, 0.15, 0.0) == pytest.approx(0.1)
    assert settled(algorithm, 1.5, 9.0) == 2


def test_within_a_round_c_a_stays(hand):
    at = hand.at(c_a=0.5, c2=7.0)
    measured = Measured(jnp.array(9.0), jnp.array(9.0), jnp.array(9.0))
    assert FedKLAnchored().adapt(at, measured) is at.coefficients


def test_the_server_averages_c_a():
    algorithm = FedKLAnchored(c_a=0.25, c_a_bounds=(0.125, 2.0))
    expected = Coefficient(0.25, (0.125, 2.0), "averaged", growth=2.0)
    assert algorithm.coefficients() == {"c_a": expected}


# Weighted by how much more all clients are there.

WEIGHTED = FedKLAnchored(weighted=True)
SPREAD = SEEN.std(axis=0)
ELSEWHERE = SEEN + 50 * SPREAD


@pytest.fixture
def weights(hand, discrete):
    """What all anchors of an iteration count for, by what all and by what the client have seen."""

    def prepare(everybody, own, broadcast=None, algorithm=WEIGHTED):
        now = hand.now()._replace(
            previous_policy=discrete,
            global_policy=discrete,
            statistics=everybody,
            broadcast_statistics=everybody if broadcast is None else broadcast,
            seen=own,
        )
        return jax.jit(lambda a, now: a.prepare(now, KEY).weight)(algorithm, now)

    return prepare


def test_a_client_like_all_others_pays_for_no_anchor(weights):
    found = weights(known(), known())
    assert found.shape == (BLOCKS, FedKLAnchored().anchors_per_step)
    assert not found.any()


def test_a_client_that_is_nowhere_near_the_others_pays_for_all_anchors(weights):
    assert (weights(known(), known(ELSEWHERE)) > 0.999).all()


def test_a_client_pays_for_the_anchors_in_the_half_that_it_never_sees(weights, drawn):
    """It sees only where the first feature is below the mean."""
    found = np.asarray(weights(known(), known(SEEN[SEEN[:, 0] < SEEN[:, 0].mean()]))).ravel()
    first = rows(drawn(FedKLAnchored(), known()))[:, 0]
    assert (found[first > 1.5] > 0.99).all()
    assert found[first < -1].mean() < 0.1


def test_while_nobody_else_has_seen_anything_anchors_cost_nothing(weights):
    nothing = jax.tree.map(jnp.zeros_like, known())
    assert not weights(known(), known(ELSEWHERE), broadcast=nothing).any()


def test_broken_covariances_give_weights(weights):
    """Of medians, features may all go apart from each other, which no data do; others lie on a
    line, or never vary."""
    impossible = Moments(jnp.array(10.0), jnp.zeros(5), jnp.full(5, 10.0), jnp.full(10, -10.0))
    line = known(np.linspace(-1, 1, 50)[:, None] * np.ones((1, 5), np.float32))
    constant = known(np.zeros((50, 5), np.float32))
    for everybody in (impossible, line, constant, known()):
        for own in (impossible, line, constant, known()):
            found = weights(everybody, own)
            assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("anchors", ["normal", "diagonal", "shared"])
def test_anchors_of_every_source_have_weights(hand, discrete, anchors):
    algorithm = FedKLAnchored(weighted=True, anchors=anchors)
    assert algorithm.needs_covariance == (anchors != "diagonal")
    everybody, own = (known(x, algorithm.needs_covariance) for x in (SEEN, ELSEWHERE))
    now = hand.now()._replace(
        global_policy=discrete,
        server_state=pool_of(SEEN[:10]) if anchors == "shared" else (),
        statistics=everybody,
        broadcast_statistics=everybody,
        seen=own,
    )
    assert (algorithm.prepare(now, KEY).weight > 0.99).all()


def test_without_the_setting_nothing_is_weighed(drawn):
    assert drawn(FedKLAnchored(), known()).weight is None


def test_the_penalty_is_the_mean_of_weight_times_kl(hand):
    """KL is 14 - log 2 in state 3 and 2 - log 2 in state -1 (above)."""
    states = jnp.tile(jnp.array([[3.0], [-1.0]]), (BLOCKS, 1, 1))
    weight = jnp.tile(jnp.array([0.25, 0.5]), (BLOCKS, 1))
    anchors = Anchors(states, hand.broadcast.network(states), weight)
    at = hand.at(c_a=2.0)._replace(prepared=anchors)
    expected = 2.0 * (0.25 * (14 - math.log(2)) + 0.5 * (2 - math.log(2))) / 2
    assert float(WEIGHTED.penalty(at)) == pytest.approx(expected, rel=1e-5)


def test_the_gradient_of_the_weighted_penalty_is_finite_with_singular_moments(hand, discrete):
    line = known(np.linspace(-1, 1, 50)[:, None] * np.ones((1, 5), np.float32))
    now = hand.now(c_a=1.0)._replace(
        previous_policy=discrete,
        global_policy=discrete,
        statistics=known(),
        broadcast_statistics=known(),
        seen=line,
    )
    now = now._replace(prepared=WEIGHTED.prepare(now, KEY))

    def penalty(policy):
        return WEIGHTED.penalty(now._replace(policy=policy))

    moved = jax.tree.map(lambda x: x + 0.1, discrete)
    gradients = jax.tree.leaves(jax.grad(penalty)(moved))
    assert all(jnp.isfinite(g).all() for g in gradients)
    assert any(jnp.any(g != 0) for g in gradients)


def test_clients_side_by_side_weigh_as_they_would_alone(hand, discrete):
    """The second of three is like all."""
    own = [known(SEEN + shift * SPREAD) for shift in (1.0, 0.0, 50.0)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *own)

    def weigh(seen):
        now = hand.now()._replace(
            global_policy=discrete, statistics=known(), broadcast_statistics=known(), seen=seen
        )
        return jnp.mean(WEIGHTED.prepare(now, KEY).weight)

    together = jax.jit(jax.vmap(weigh))(stacked)
    np.testing.assert_allclose(together, [weigh(x) for x in own], atol=1e-5)
    assert together[1] == pytest.approx(0, abs=1e-5)
    assert 0.1 < together[0] < together[2]


def one_feature(*x):
    return of_batch(jnp.array(x)[:, None], jnp.ones(len(x), bool), True)


def test_c_a_follows_what_weighted_anchors_measure(settled):
    """A client like all others measures nothing, however far its policy went."""
    algorithm, everybody = FedKLAnchored(d_anchor=0.3, weighted=True), one_feature(0.0, 1.0)
    alike = settled(algorithm, 0.5, 9.0, seen=everybody, broadcast_statistics=everybody)
    assert alike == pytest.approx(0.25)
    away = one_feature(100.0, 101.0)
    different = settled(algorithm, 0.5, 9.0, seen=away, broadcast_statistics=everybody)
    assert different == pytest.approx(1)


def test_c_a_stays_while_nobody_else_has_seen_anything(settled):
    algorithm = FedKLAnchored(d_anchor=0.3, weighted=True)
    nothing = jax.tree.map(jnp.zeros_like, one_feature(0.0))
    for kl in (0.0, 9.0):
        after = settled(
            algorithm, 0.5, kl, seen=one_feature(0.0, 1.0), broadcast_statistics=nothing
        )
        assert after == pytest.approx(0.5)


def test_a_personal_part_is_charged_for_by_plain_anchors_alone(hand, normal, settled):
    """A bias of the client's own goes from 0 to 3, and the shared weight stays: KL is 9 / 2."""
    begun, moved = normal(0.5, 0.0, 1.0), normal(0.5, 3.0, 1.0)
    personal = personal_part(begun, "action-bias")
    states = jnp.zeros((BLOCKS, 2, 1))
    anchors = Anchors(states, begun.network(states), jnp.ones((BLOCKS, 2)))
    at = hand.at(c_a=1.0)._replace(
        prepared=anchors, policy=moved, global_policy=begun, personal=personal
    )
    assert float(WEIGHTED.penalty(at)) == 0
    plain = at._replace(prepared=anchors._replace(weight=None))
    assert float(FedKLAnchored().penalty(plain)) == pytest.approx(4.5)
    # c_a falls where nothing but the personal part has moved.
    here, there = one_feature(0.0, 1.0), one_feature(100.0, 101.0)
    after = settled(
        WEIGHTED,
        0.5,
        4.5,
        seen=there,
        broadcast_statistics=here,
        personal=personal_part(normal(0.0, 0.0, 1.0), "action-bias"),
    )
    assert after == pytest.approx(0.25)


def test_what_is_shared_is_charged_for_beside_a_personal_part(hand, normal):
    """The shared weight goes from 0 to 1, in state 2, whatever the bias does: KL is 2."""
    begun, moved = normal(0.0, 0.5, 1.0), normal(1.0, 3.0, 1.0)
    states = jnp.full((BLOCKS, 2, 1), 2.0)
    anchors = Anchors(states, begun.network(states), jnp.ones((BLOCKS, 2)))
    at = hand.at(c_a=1.0)._replace(
        prepared=anchors,
        policy=moved,
        global_policy=begun,
        personal=personal_part(begun, "action-bias"),
    )
    assert float(WEIGHTED.penalty(at)) == pytest.approx(2)


# Anchors that clients give up.


def pool_of(states):
    padded = np.zeros((POOL, FEATURES), np.float32)
    padded[: len(states)] = states
    return AnchorPool(padded, np.int32(len(states)))


def test_an_empty_pool_has_one_anchor_an_observation_of_zeros(drawn, discrete):
    """As all observations it is standardised, and here clipped."""
    shared = FedKLAnchored(anchors="shared").server_state(discrete)
    assert shared.states.shape == (POOL, FEATURES)
    assert shared.filled == 0
    states = rows(drawn(FedKLAnchored(anchors="shared"), known(), shared=shared))
    expected = np.clip(-SEEN.mean(axis=0) / np.maximum(SEEN.std(axis=0), 1e-4), -5, 5)
    np.testing.assert_allclose(states, np.tile(expected, (len(states), 1)), rtol=1e-4, atol=1e-5)


def test_anchors_are_those_in_the_pool_and_all_of_them(drawn):
    """Mean 2 and deviation 4 of all features: 2 + 4 n / 10 is n / 10 when it is standardised."""
    spread = Moments(jnp.array(9.0), jnp.full(5, 2.0), jnp.full(5, 9 * 16.0))
    mine = 2 + 4 * np.arange(1, 11)[:, None] * np.ones((1, FEATURES), np.float32) / 10
    states = rows(drawn(FedKLAnchored(anchors="shared"), spread, shared=pool_of(mine)))
    assert {round(float(x), 3) for x in states[:, 0]} == {n / 10 for n in range(1, 11)}


def test_absurd_observations_in_the_pool_are_clipped_where_they_are_used(drawn):
    """A client may send anything; it is no further out than an observation of one's own."""
    wild = pool_of(np.full((3, FEATURES), 1e9, np.float32))
    states = rows(drawn(FedKLAnchored(anchors="shared"), known(), clip=2.5, shared=wild))
    assert (states == 2.5).all()


def test_messages_are_held_to_a_norm_unless_they_are_observations():
    assert FedKLAnchored().bounds_messages
    assert not FedKLAnchored(anchors="shared").bounds_messages
    assert [FedKLAnchored(anchors=a).shares for a in ("normal", "diagonal", "shared")] == [
        False,
        False,
        True,
    ]


def test_nearly_the_same_statistics_give_nearly_the_same_anchors(drawn):
    """Also where eigenvalues are nearly equal, and eigenvectors might turn anywhere."""
    independent = np.random.default_rng(1).normal(size=(500, 5)).astype(np.float32)
    one, other = (rows(drawn(FedKLAnchored(), known(x))) for x in (independent, independent[:-1]))
    assert np.abs(one - other).max() < 0.1


def a_message(value):
    return np.full((GIVEN_UP, FEATURES), value, np.float32)


def test_the_pool_keeps_the_newest_first(discrete):
    algorithm = FedKLAnchored(anchors="shared")
    pool = jax.device_get(algorithm.server_state(discrete))
    pool = algorithm.gather(pool, [a_message(1), a_message(2)], clients=9)
    assert pool.filled == 2 * GIVEN_UP
    pool = algorithm.gather(pool, [a_message(3)], clients=9)
    assert pool.filled == 3 * GIVEN_UP
    np.testing.assert_array_equal(pool.states[: 4 * GIVEN_UP, 0], np.repeat([3, 1, 2, 0], GIVEN_UP))
    assert pool.states.shape == (POOL, FEATURES)
    assert pool.states.dtype == np.float32


def test_a_full_pool_loses_the_oldest(discrete):
    """42 messages of 24 are 1008, the 43rd fills it up, the 44th pushes out."""
    algorithm = FedKLAnchored(anchors="shared")
    pool = jax.device_get(algorithm.server_state(discrete))
    for value in range(1, 45):
        pool = algorithm.gather(pool, [a_message(value)], clients=9)
    assert pool.filled == POOL
    assert pool.states[0, 0] == 44
    assert pool.states[-1, 0] == 2
    assert (pool.states[:, 0] == 2).sum() == POOL - 42 * GIVEN_UP
    assert 1 not in pool.states[:, 0]


def test_nobodys_messages_leave_the_pool_alone(discrete):
    algorithm = FedKLAnchored(anchors="shared")
    pool = algorithm.server_state(discrete)
    assert algorithm.gather(pool, [], clients=9) is pool
    assert FedKLAnchored().server_state(discrete) == ()
    assert FedKLAnchored().gather((), [(), ()], clients=9) == ()


def test_a_client_sends_its_sample_and_nothing_else(hand):
    sample = jnp.ones((GIVEN_UP, 1))
    assert FedKLAnchored(anchors="shared").finish(hand.ended(client_state=(), sample=sample)) == (
        (),
        sample,
    )
    assert FedKLAnchored().finish(hand.ended(client_state=())) == ((), ())


def test_c_a_follows_what_shared_anchors_measure(settled):
    pool = AnchorPool(np.ones((POOL, 1), np.float32), np.int32(3))
    algorithm = FedKLAnchored(anchors="shared", d_anchor=0.3)
    assert settled(algorithm, 0.5, 0.4, server_state=pool) == 1


# What is refused.


@pytest.mark.parametrize("place", ["local", "none"])
@pytest.mark.parametrize("anchors", ["normal", "diagonal", "shared"])
def test_without_statistics_of_all_clients_there_are_no_anchors(place, anchors):
    message = (
        rf"^federation\.observation_statistics must be federated for fedkl-anchored, not {place}"
    )
    with pytest.raises(UserError, match=message):
        FedKLAnchored(anchors=anchors).check(LearnerSettings(), Sharing(observations=place))
    settings = {"federation.observation_statistics": place, "algorithm.anchors": anchors}
    with pytest.raises(UserError, match=message):
        fedkl.preset("probe-point", "fedkl-anchored", set=settings)


def test_the_command_line_says_so_and_ends_with_2(capsys, tmp_path):
    run = tmp_path / "run"
    asked = ["train", "probe-point", "--algorithm", "fedkl-anchored", "--run", str(run)]
    with pytest.raises(SystemExit) as exit_:
        cli.main([*asked, "--set", "federation.observation_statistics=none"])
    assert exit_.value.code == 2
    assert "federation.observation_statistics must be federated" in capsys.readouterr().err
    assert not run.exists()


def test_bounds_of_c_a_the_wrong_way_round_are_refused():
    with pytest.raises(UserError, match=r"^algorithm\.c_a_bounds must be in ascending order"):
        FedKLAnchored(c_a_bounds=(2.0, 1.0))


def test_shared_anchors_do_not_go_with_regions():
    """Regions exchange models only."""
    settings = {"aggregation.reduce": "grouped", "algorithm.anchors": "shared"}
    with pytest.raises(
        UserError, match=r"^aggregation\.reduce must not be grouped with fedkl-anch"
    ):
        fedkl.preset("probe-point", "fedkl-anchored", set=settings)


def test_the_settings_are_leaves_that_compiled_code_takes():
    numbers = jax.tree.leaves(FedKLAnchored(d_anchor=0.5, c_a=0.25, c_a_bounds=(0.125, 2.0)))
    assert sorted(numbers) == [0.125, 0.25, 0.5, 2.0]
    assert eqx.tree_equal(FedKLAnchored(), FedKLAnchored())
