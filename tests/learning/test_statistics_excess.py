"""How much more all clients visit a state than one of them does, from the moments of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedkl.learning.statistics import Moments, excess, of_batch, pairs


def moments(mean, covariance, count=100.0):
    """Of a sample that has this mean and covariance."""
    mean, covariance = np.atleast_1d(mean).astype(np.float32), np.atleast_2d(covariance)
    i, j = pairs(len(mean))
    squares, products = np.diag(covariance) * count, covariance[i, j] * count
    given = (jnp.asarray(x, jnp.float32) for x in (count, mean, squares, products))
    return Moments(*given)


def test_by_hand_in_one_dimension():
    """All are N(0, 1), one is N(1, 1): p_own / p_all = exp(x - 1/2)."""
    found = excess(moments(0.0, 1.0), moments(1.0, 1.0), jnp.array([[-1.0], [0.0], [0.5], [2.0]]))
    expected = [1 - np.exp(-1.5), 1 - np.exp(-0.5), 0, 0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_client_that_is_narrower_is_less_often_far_out_only():
    """N(0, 1/4) in N(0, 1): the ratio is 2 exp(-3 x^2 / 2), which is 1 at x^2 = log(4) / 3."""
    edge = np.sqrt(np.log(4) / 3)
    x = np.array([0.0, 0.99 * edge, 1.0, 2.0])
    found = excess(moments(0.0, 1.0), moments(0.0, 0.25), jnp.asarray(x)[:, None])
    np.testing.assert_allclose(
        found, np.maximum(0, 1 - 2 * np.exp(-1.5 * x**2)), atol=1e-5, rtol=1e-5
    )
    assert found[1] == 0


def test_states_are_standardised_by_the_moments_of_all():
    """All are N(10, 4^2), one is N(14, 4^2): the same as N(0, 1) and N(1, 1)."""
    found = excess(moments(10.0, 16.0), moments(14.0, 16.0), jnp.array([[-1.0]]))
    assert float(found[0]) == pytest.approx(1 - np.exp(-1.5), rel=1e-4)


def test_by_hand_with_a_correlation():
    """All have correlation 1/2 and one has none, of the same deviations: at (1, 1) the ratio is
    sqrt(3/4) exp(-1 + 2/3), at (1, -1) it is sqrt(3/4) exp(-1 + 2)."""
    everybody = moments([0, 0], [[1, 0.5], [0.5, 1]])
    found = excess(everybody, moments([0, 0], np.eye(2)), jnp.array([[1.0, 1.0], [1.0, -1.0]]))
    expected = [1 - np.sqrt(0.75) * np.exp(-1 / 3), 0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_it_agrees_with_scipy_in_five_dimensions():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(2000, 5)) @ rng.normal(size=(5, 5)) + rng.normal(size=5) for _ in "ab")
    everybody, one = (of_batch(jnp.asarray(x, jnp.float32), jnp.ones(2000), True) for x in (a, b))
    raw = a[:200]
    found = excess(everybody, one, jnp.asarray((raw - a.mean(axis=0)) / a.std(axis=0), jnp.float32))
    own, every = (
        stats.multivariate_normal(x.mean(axis=0), np.cov(x, rowvar=False, bias=True)).logpdf(raw)
        for x in (b, a)
    )
    np.testing.assert_allclose(found, np.maximum(0, 1 - np.exp(own - every)), atol=0.02)


def test_its_mean_over_the_states_of_all_is_the_total_variation():
    """Of N(0, 1) and N(1, 1) that is 2 Phi(1/2) - 1."""
    x = jax.random.normal(jax.random.key(0), (100_000, 1))
    found = jnp.mean(excess(moments(0.0, 1.0), moments(1.0, 1.0), x))
    assert float(found) == pytest.approx(2 * stats.norm.cdf(0.5) - 1, abs=0.005)


def anywhere(features, number=500):
    return 3 * jax.random.normal(jax.random.key(1), (number, features))


MIXED = np.random.default_rng(1).normal(size=(4, 4))


@pytest.mark.parametrize(
    "covariance",
    [np.eye(4), MIXED @ MIXED.T, MIXED[:, :1] @ MIXED[:, :1].T, np.zeros((4, 4)), 1e10 * np.eye(4)],
    ids=["independent", "mixed", "of rank one", "constant", "large"],
)
def test_a_client_that_is_like_all_is_as_often_everywhere(covariance):
    same = moments([1.0, -2.0, 1e3, 0.0], covariance)
    assert not excess(same, same, anywhere(4)).any()


def test_where_a_client_never_is_only_others_are():
    """All are of two kinds, 10 deviations of one kind apart; the one is of the first."""
    everybody, one = moments(0.0, 1.0), moments(-0.98, 0.04)
    found = excess(everybody, one, jnp.array([[0.98], [1.2], [-0.98]]))
    assert (found[:2] > 0.999).all()
    assert found[2] == 0


def test_a_feature_that_is_constant_for_one_and_not_for_all_tells_them_apart():
    everybody, one = moments([0, 0], np.eye(2)), moments([0, 0.5], [[1, 0], [0, 0]])
    found = excess(everybody, one, jnp.array([[0.0, 0.5], [0.0, -0.5], [0.0, 1.5]]))
    np.testing.assert_allclose(found, [0, 1, 1], atol=1e-3)


IMPOSSIBLE = np.full((3, 3), -1.0) + 2 * np.eye(3)
EXTREMES = {
    "far away": ([1e6] * 3, np.eye(3)),
    "far away and constant": ([1e6] * 3, np.zeros((3, 3))),
    "very wide": ([0.0] * 3, 1e12 * np.eye(3)),
    "very narrow": ([0.0] * 3, 1e-12 * np.eye(3)),
    "on a line": ([0.0] * 3, np.ones((3, 3))),
    "of no possible data": ([0.0] * 3, IMPOSSIBLE),
}


@pytest.mark.parametrize("everybody", EXTREMES)
@pytest.mark.parametrize("one", EXTREMES)
def test_it_is_a_number_from_0_to_1_whatever_the_moments(everybody, one):
    found = excess(moments(*EXTREMES[everybody]), moments(*EXTREMES[one]), anywhere(3))
    assert ((found >= 0) & (found <= 1)).all()


def test_moments_of_one_sample_or_none_give_numbers():
    for count in (0.0, 1.0):
        none = moments([0.0, 0.0], np.zeros((2, 2)), count=count)
        for pair in ((none, moments([0, 0], np.eye(2))), (moments([0, 0], np.eye(2)), none)):
            assert jnp.isfinite(excess(*pair, anywhere(2))).all()


def test_without_products_features_are_taken_for_independent():
    def alone(m):
        return Moments(m.count, m.mean, m.squares)

    together, one = moments([0, 0], [[1, 0.9], [0.9, 1]]), moments([1, 0], [[1, 0.9], [0.9, 1]])
    plain = moments([0, 0], np.eye(2)), moments([1, 0], np.eye(2))
    x = anywhere(2)
    np.testing.assert_array_equal(excess(alone(together), alone(one), x), excess(*plain, x))


def test_compiled_and_side_by_side_it_is_the_same():
    everybody = moments([0, 0], [[1, 0.5], [0.5, 1]])
    ones = [moments([m, 0], [[v, 0], [0, 1]]) for m, v in ((0.0, 1.0), (1.0, 0.5), (0.3, 0.0))]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *ones)
    x = anywhere(2)
    together = jax.jit(jax.vmap(excess, in_axes=(None, 0, None)))(everybody, stacked, x)
    for found, one in zip(together, ones, strict=True):
        np.testing.assert_allclose(found, excess(everybody, one, x), atol=1e-5)
