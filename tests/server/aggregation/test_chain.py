"""theta^{t+1} = sum_k l_k / L theta_k by default; and what each link of the chain changes."""

from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

from fedkl.core.errors import UserError
from fedkl.learning.statistics import Moments, correlation, pairs
from fedkl.server.aggregation import (
    SGD,
    Adam,
    AggregationChain,
    Clip,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    NoStep,
    Reducer,
    Step,
    Transform,
    TrimmedMean,
    Yogi,
)

KEY = jax.random.key(0)


def aggregate(model, updates, chain=None):
    chain = chain or AggregationChain((), Mean(), NoStep())
    return chain(chain.init(model), 0, model, updates, KEY)


def weights_of(model):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(model.policy)])


def test_the_average_is_weighted_by_the_number_of_samples(filled, update):
    result = aggregate(filled(0.0), {4: update(1.0, 1), 2: update(5.0, 3)}).model
    assert weights_of(result).tolist() == [4.0, 4.0, 4.0]
    assert result.coefficients["c2"] == 4.0
    assert {leaf.dtype for leaf in jax.tree.leaves((result.policy, result.critic))} == {
        np.dtype(np.float32)
    }


def test_one_update_replaces_the_model(filled, update):
    result = aggregate(filled(0.0), {0: update(0.3, 17)}).model
    assert weights_of(result)[0] == np.float32(0.3)


def test_the_order_of_arrival_does_not_change_a_bit(filled, update):
    rng = np.random.default_rng(0)
    updates = {c: update(rng.normal(), rng.integers(1, 100)) for c in range(9)}
    forwards = aggregate(filled(0.0), updates).model
    backwards = aggregate(filled(0.0), dict(reversed(updates.items()))).model
    assert eqx.tree_equal(forwards, backwards)


def test_what_the_algorithm_shares_is_not_the_chains_business(filled, update):
    model = eqx.tree_at(lambda m: m.shared, filled(0.0), np.float32(7))
    assert aggregate(model, {0: update(1.0)}).model.shared == 7


class Halves(Reducer):
    """One that forgets half of the coordinates."""

    name: ClassVar[str] = "halves"
    summary: ClassVar[str] = "half of a point"

    def __call__(self, points, weights):
        return points[0, ::2]


def test_a_reducer_that_makes_no_point_is_named(filled, update):
    with pytest.raises(UserError, match=r"aggregation\.reduce = halves must make one point of 3"):
        aggregate(filled(0.0), {0: update(1.0)}, AggregationChain((), Halves(), NoStep()))


class TestMoments:
    """They are merged, not averaged, unless the reducer was chosen because clients may lie."""

    def test_merged_statistics_equal_those_of_all_data_together(self, filled, update):
        rng = np.random.default_rng(1)
        parts = [rng.normal(3.0, 2.0, size=(n, 1)) for n in (50, 7, 120)]
        updates = {c: update(0.0, len(p), p) for c, p in enumerate(parts[1:])}
        result = aggregate(filled(0.0, parts[0]), updates).model.observations
        everything = np.concatenate(parts)
        assert result.count == 177
        assert result.mean == pytest.approx(everything.mean(0), abs=1e-6)
        assert result.squares / result.count == pytest.approx(everything.var(0), abs=1e-6)
        assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(result))

    @pytest.mark.parametrize(
        "reducer", [Median(), TrimmedMean(), GeometricMedian(), Krum()], ids=lambda r: r.name
    )
    def test_one_liar_among_many_hardly_moves_a_robust_reducers_statistics(
        self, filled, update, reducer
    ):
        rng = np.random.default_rng(2)
        data = [rng.normal(3.0, 2.0, size=(1000, 1)) for _ in range(7)]
        honest = {c: update(0.0, 1000, part) for c, part in enumerate(data)}
        lies = {9: update(0.0, 1000, 1e6 * rng.normal(size=(1000, 1)))}
        chain = AggregationChain((), reducer, NoStep())
        known = filled(0.0, rng.normal(3.0, 2.0, size=(1000, 1)))
        found = aggregate(known, honest | lies, chain).model.observations
        assert found.mean[0] == pytest.approx(3.0, abs=0.2)
        assert np.sqrt(found.squares / found.count)[0] == pytest.approx(2.0, abs=0.2)
        assert found.count == 9000
        exact = aggregate(known, honest | lies).model.observations
        assert np.sqrt(exact.squares / exact.count)[0] > 1e4

    def test_where_clients_agree_a_robust_reducer_merges_like_the_mean(self, filled, update):
        data = np.array([[1.0], [2.0], [6.0]])
        updates = {c: update(0.0, 3, data) for c in range(5)}
        robust = aggregate(
            filled(0.0), updates, AggregationChain((), Median(), NoStep())
        ).model.observations
        exact = aggregate(filled(0.0), updates).model.observations
        for a, b in zip(jax.tree.leaves(robust), jax.tree.leaves(exact), strict=True):
            assert a == pytest.approx(b, rel=1e-12)

    def test_two_clients_far_apart_spread_the_median_reducers_statistics(self, filled, update):
        # Means 0 and 4, variances 1: mean squares 1 and 17, whose median is 9; 9 - 2^2 = 5.
        low, high = np.array([[-1.0], [1.0]]), np.array([[3.0], [5.0]])
        updates = {0: update(0.0, 2, low), 1: update(0.0, 2, high)}
        found = aggregate(
            filled(0.0), updates, AggregationChain((), Median(), NoStep())
        ).model.observations
        assert (found.count, found.mean[0], found.squares[0] / found.count) == (4, 2.0, 5.0)

    def test_clients_without_data_change_no_statistics(self, filled, update):
        known = filled(0.0, np.array([[1.0], [3.0]]))
        for reducer in (Mean(), Median()):
            chain = AggregationChain((), reducer, NoStep())
            found = aggregate(known, {0: update(1.0)}, chain).model.observations
            assert eqx.tree_equal(found, known.observations)


class TestTransforms:
    """They see what a client added to what it started from."""

    def test_a_clipped_move_keeps_its_direction_and_loses_its_length(self, filled, update):
        # The policy has three numbers, so a move of 2 each has norm 2 sqrt(3).
        chain = AggregationChain((Clip(max_norm=np.sqrt(3)),), Mean(), NoStep())
        result = aggregate(filled(10.0), {0: update(12.0)}, chain).model
        assert weights_of(result) == pytest.approx([11.0] * 3)

    def test_each_network_is_clipped_by_itself(self, filled, update):
        sent = update(0.0)
        sent = eqx.tree_at(
            lambda u: u.model.critic, sent, jax.tree.map(lambda x: x + 100, sent.model.critic)
        )
        result = aggregate(
            filled(0.0), {0: sent}, AggregationChain((Clip(1.0),), Mean(), NoStep())
        ).model
        assert weights_of(result).tolist() == [0.0] * 3
        norm = np.sqrt(sum(np.sum(x**2) for x in jax.tree.leaves(result.critic)))
        assert norm == pytest.approx(1.0)

    def test_coefficients_and_moments_are_not_transformed(self, filled, update):
        data = np.array([[50.0], [70.0]])
        chain = AggregationChain((Clip(1e-3),), Mean(), NoStep())
        result = aggregate(filled(0.0), {0: update(9.0, 2, data)}, chain).model
        assert result.coefficients["c2"] == 9
        assert result.observations.mean == [60]


class Noise(Transform):
    """Adds random numbers."""

    name: ClassVar[str] = "noise"
    summary: ClassVar[str] = "adds noise"

    def __call__(self, move, key):
        return move + np.asarray(jax.random.normal(key, move.shape))


class TestChance:
    """Every network, every client and every transform has numbers of its own."""

    def test_policy_and_critic_are_not_changed_by_the_same_noise(self, filled, update):
        made = aggregate(
            filled(0.0), {0: update(0.0)}, AggregationChain((Noise(),), Mean(), NoStep())
        ).model
        critic = np.concatenate([np.ravel(x) for x in jax.tree.leaves(made.critic)])
        assert not np.isclose(weights_of(made)[:, None], critic[None]).any()

    def test_two_transforms_draw_different_numbers(self, filled, update):
        once = aggregate(
            filled(0.0), {0: update(0.0)}, AggregationChain((Noise(),), Mean(), NoStep())
        ).model
        twice = AggregationChain((Noise(), Noise()), Mean(), NoStep())
        both = aggregate(filled(0.0), {0: update(0.0)}, twice).model
        assert not np.allclose(weights_of(both), 2 * weights_of(once))

    def test_a_step_may_add_noise_with_the_key_it_is_given(self, filled, update):
        class Noisy(Step):
            name: ClassVar[str] = "noisy"
            summary: ClassVar[str] = "adds noise"

            def optimiser(self):
                def change(gradient, state, params=None, *, key):
                    noise = jax.random.normal(key, ())
                    return jax.tree.map(lambda g: -g + noise, gradient), state

                return optax.GradientTransformationExtraArgs(lambda _: (), change)

        chain = AggregationChain((), Mean(), Noisy())
        once, again = (aggregate(filled(0.0), {0: update(1.0)}, chain).model for _ in range(2))
        assert eqx.tree_equal(once, again)
        assert not np.isclose(weights_of(once), 1.0).any()

    def test_a_step_that_keeps_a_key_is_refused(self, filled):
        class Hoarding(Step):
            name: ClassVar[str] = "hoarding"
            summary: ClassVar[str] = "keeps a key"

            def optimiser(self):
                return optax.GradientTransformation(lambda _: KEY, lambda g, s, p=None: (g, s))

        with pytest.raises(UserError, match=r"aggregation\.step = hoarding keeps a key"):
            AggregationChain((), Mean(), Hoarding()).init(filled(0.0))


class TestSteps:
    """The server's optimiser follows old - reduced, with a memory of its own."""

    def test_a_server_learning_rate_of_one_half_goes_half_the_way(self, filled, update):
        chain = AggregationChain((), Mean(), SGD(server_learning_rate=0.5))
        assert weights_of(aggregate(filled(1.0), {0: update(3.0)}, chain).model) == pytest.approx(
            [2.0] * 3
        )

    def test_momentum_goes_on_where_the_last_round_went(self, filled, update):
        # v = 1, x = 1; then clients stay where they are, and v = 0.9 moves x on to 1.9.
        chain = AggregationChain((), Mean(), SGD(server_momentum=0.9))
        first = chain(chain.init(filled(0.0)), 0, filled(0.0), {0: update(1.0)}, KEY)
        assert weights_of(first.model) == pytest.approx([1.0] * 3)
        second = chain(first.state, 1, first.model, {0: update(1.0)}, KEY)
        assert weights_of(second.model) == pytest.approx([1.9] * 3)

    @pytest.mark.parametrize("step", [Adam(0.1, tau=1e-8), Yogi(0.1, tau=1e-8)])
    def test_the_first_adaptive_step_has_the_learning_rates_length(self, filled, update, step):
        chain = AggregationChain((), Mean(), step)
        result = aggregate(filled(0.0), {0: update(5.0)}, chain).model
        assert weights_of(result) == pytest.approx([0.1] * 3, rel=1e-3)

    def test_only_networks_are_stepped(self, filled, update):
        chain = AggregationChain((), Mean(), SGD(server_learning_rate=0.5))
        result = aggregate(filled(0.0), {0: update(4.0)}, chain).model
        assert result.coefficients["c2"] == 4

    def test_the_state_is_of_numpy_arrays_that_can_be_saved(self, filled, update):
        chain = AggregationChain((), Mean(), Adam())
        first = chain(chain.init(filled(0.0)), 0, filled(0.0), {0: update(1.0)}, KEY)
        for state in (chain.init(filled(0.0)), first.state):
            assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in jax.tree.leaves(state))
        assert jax.tree.structure(chain.init(filled(0.0))) == jax.tree.structure(first.state)


class TestProducts:
    """Where statistics hold products of features, the server merges or reduces these, too."""

    ROBUST: ClassVar = [Median(), TrimmedMean(), GeometricMedian(), Krum()]

    @staticmethod
    def seen(data):
        """The moments of data as a client sends them, with products."""
        data = np.asarray(data, np.float64)
        d = data - data.mean(0)
        i, j = pairs(data.shape[1])
        products = (d[:, i] * d[:, j]).sum(0)
        return Moments(np.float64(len(data)), data.mean(0), (d**2).sum(0), products)

    def merged(self, filled, update, known, news, reducer):
        """The server's statistics after a round in which each client sends some."""
        model = eqx.tree_at(lambda m: m.observations, filled(0.0), known)
        updates = {
            c: eqx.tree_at(
                lambda u: u.model.observations, update(0.0), jax.tree.map(np.float32, new)
            )
            for c, new in enumerate(news)
        }
        return aggregate(model, updates, AggregationChain((), reducer, NoStep())).model.observations

    def nothing(self, features=3):
        return jax.tree.map(np.zeros_like, self.seen(np.zeros((1, features))))

    def data(self, rng, rows=400):
        mixing = np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 2.0]])
        return rng.normal(size=(rows, 3)) @ mixing + np.array([1.0, -2.0, 5.0])

    def test_the_mean_merges_the_covariance_of_all_data_together(self, filled, update):
        rng = np.random.default_rng(3)
        parts = [self.data(rng, n) for n in (50, 7, 120)]
        known, *news = map(self.seen, parts)
        found = self.merged(filled, update, known, news, Mean())
        everything = np.concatenate(parts)
        i, j = pairs(3)
        expected = np.cov(everything, rowvar=False, bias=True)[i, j]
        np.testing.assert_allclose(found.products / found.count, expected, atol=1e-5)
        assert found.products.dtype == np.float64

    def test_the_median_of_two_clients_by_hand(self, filled, update):
        """Means (0, 0) and (4, 2), both of (co)variance 1: of products 1 and 1 + 8 the median is 5,
        less that of the means, 2 times 1."""
        low = self.seen([[-1.0, -1.0], [1.0, 1.0]])
        high = self.seen([[3.0, 1.0], [5.0, 3.0]])
        found = self.merged(filled, update, self.nothing(2), [low, high], Median())
        assert found.products / found.count == pytest.approx([3.0])
        assert found.squares / found.count == pytest.approx([5.0, 2.0])

    @pytest.mark.parametrize("reducer", ROBUST, ids=lambda r: r.name)
    def test_where_clients_agree_a_robust_reducer_merges_like_the_mean(
        self, filled, update, reducer
    ):
        news = [self.seen(self.data(np.random.default_rng(4)))] * 5
        robust, exact = (
            self.merged(filled, update, self.nothing(), news, r) for r in (reducer, Mean())
        )
        np.testing.assert_allclose(robust.products, exact.products, rtol=1e-6, atol=1e-3)

    @pytest.mark.parametrize("reducer", ROBUST, ids=lambda r: r.name)
    def test_one_liar_among_many_hardly_moves_them(self, filled, update, reducer):
        rng = np.random.default_rng(5)
        honest = [self.seen(self.data(rng)) for _ in range(7)]
        liar = self.seen(rng.normal(size=(400, 3)) @ np.full((3, 3), 1e4))
        known = self.seen(self.data(rng))
        found = self.merged(filled, update, known, [*honest, liar], reducer)
        np.testing.assert_allclose(correlation(found)[0, 1:], [0.8, 0.0], atol=0.15)

    @pytest.mark.parametrize("reducer", ROBUST, ids=lambda r: r.name)
    def test_whatever_clients_send_a_product_stays_within_what_the_squares_allow(
        self, filled, update, reducer
    ):
        rng = np.random.default_rng(6)
        i, j = pairs(3)
        for _ in range(20):
            news = [
                self.seen(rng.normal(size=(5, 3)) @ rng.normal(0, 3, (3, 3)) + rng.normal(0, 3, 3))
                for _ in range(5)
            ]
            found = self.merged(filled, update, self.nothing(), news, reducer)
            most = np.sqrt(found.squares[i] * found.squares[j])
            assert (np.abs(found.products) <= most * (1 + 1e-9)).all()

    @pytest.mark.parametrize("reducer", [Mean(), *ROBUST], ids=lambda r: r.name)
    def test_one_feature_has_none(self, filled, update, reducer):
        news = [self.seen([[1.0], [2.0], [float(n)]]) for n in range(5)]
        found = self.merged(filled, update, self.nothing(1), news, reducer)
        assert found.products.shape == (0,)
        assert found.count == 15

    @pytest.mark.parametrize("reducer", [Mean(), Median()], ids=lambda r: r.name)
    def test_clients_without_data_change_none(self, filled, update, reducer):
        known = self.seen(self.data(np.random.default_rng(7)))
        found = self.merged(filled, update, known, [self.nothing()] * 2, reducer)
        np.testing.assert_allclose(found.products, known.products, rtol=1e-12)
