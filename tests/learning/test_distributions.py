"""Distributions and their distances against SciPy, integrals and optimal transport."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from fedkl.learning.distributions import (
    DISTANCES,
    Categorical,
    Gaussian,
    kl,
    mahalanobis,
    safe_sqrt,
    sqrt_kl,
    sqrt_kl_unhalved,
    tv,
    wasserstein,
)

KEY = jax.random.key(0)
# Mean and standard deviation of p and q, on one axis.
PAIRS = [((0.0, 1.0), (0.0, 1.0)), ((0.0, 1.0), (0.5, 1.2)), ((-1.0, 0.3), (1.0, 2.0))]
LOGITS = [([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]), ([1.0, 0.0, -1.0], [0.0, 0.3, 2.0])]


def gaussian(*axes):
    """One distribution, its axes given as (mean, standard deviation)."""
    mean, std = np.array(axes, np.float32).T
    return Gaussian(jnp.asarray(mean), jnp.log(jnp.asarray(std)))


def categorical(logits):
    return Categorical(jnp.asarray(logits))


def integral(f):
    return integrate.quad(f, -15, 15, points=[-1, 0, 0.5, 1], limit=200)[0]


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 6, 2)).astype(np.float32)


def test_gaussian_log_prob_agrees_with_scipy(numbers):
    mean, action, _ = numbers
    log_std = np.float32([0.3, -1.2])
    expected = stats.norm.logpdf(action, mean, np.exp(log_std)).sum(axis=-1)
    result = Gaussian(jnp.asarray(mean), jnp.asarray(log_std)).log_prob(action)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_categorical_log_prob_agrees_with_scipy(numbers):
    logits = numbers[0] * 3
    action = jnp.array([0, 1, 1, 0, 1, 0])
    expected = special.log_softmax(logits, axis=-1)[np.arange(6), action]
    np.testing.assert_allclose(
        Categorical(jnp.asarray(logits)).log_prob(action), expected, rtol=1e-5
    )


def test_gaussian_samples_have_its_moments():
    p = Gaussian(jnp.tile(jnp.array([1.0, -2.0]), (20000, 1)), jnp.log(jnp.array([0.5, 2.0])))
    sample = np.asarray(p.sample(KEY))
    np.testing.assert_allclose(sample.mean(axis=0), [1, -2], atol=0.06)
    np.testing.assert_allclose(np.cov(sample.T), [[0.25, 0], [0, 4]], atol=0.15)
    np.testing.assert_array_equal(p.mode(), p.mean)


def test_categorical_samples_have_its_frequencies():
    p = Categorical(jnp.tile(jnp.log(jnp.array([0.2, 0.5, 0.3])), (20000, 1)))
    counts = np.bincount(np.asarray(p.sample(KEY)), minlength=3)
    assert stats.chisquare(counts, 20000 * np.array([0.2, 0.5, 0.3])).pvalue > 1e-3
    assert set(np.asarray(p.mode()).tolist()) == {1}


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_gaussian_kl_is_the_integral(p, q):
    def density(x):
        return stats.norm.pdf(x, *p) * (stats.norm.logpdf(x, *p) - stats.norm.logpdf(x, *q))

    expected = integral(density)
    assert float(kl(gaussian(p), gaussian(q))) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    # Independent axes add up.
    both = kl(gaussian(p, PAIRS[1][0]), gaussian(q, PAIRS[1][1]))
    other = kl(gaussian(PAIRS[1][0]), gaussian(PAIRS[1][1]))
    assert float(both) == pytest.approx(expected + float(other), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("p", "q"), LOGITS)
def test_categorical_kl_agrees_with_scipy(p, q):
    expected = stats.entropy(special.softmax(p), special.softmax(q))
    assert float(kl(categorical(p), categorical(q))) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_kl_is_from_the_first_to_the_second():
    p, q = gaussian((0, 1)), gaussian((0, 2))
    assert float(kl(p, q)) == pytest.approx(np.log(2) + 1 / 8 - 1 / 2, rel=1e-5)
    assert float(kl(q, p)) == pytest.approx(-np.log(2) + 2 - 1 / 2, rel=1e-5)


def test_gaussian_kl_of_nearly_equal_deviations_keeps_its_digits():
    """KL(N(0, s) || N(0, s (1 + e))) is e^2 to first order; here 1e-8."""
    p = Gaussian(jnp.zeros(1), jnp.array([0.0]))
    q = Gaussian(jnp.zeros(1), jnp.array([1e-4]))
    assert float(kl(p, q)) == pytest.approx(1e-8, rel=1e-3)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_gaussian_tv_is_between_the_true_value_and_one(p, q):
    def density(x):
        return 0.5 * abs(stats.norm.pdf(x, *p) - stats.norm.pdf(x, *q))

    true, bound = integral(density), float(tv(gaussian(p), gaussian(q)))
    assert true - 1e-6 <= bound <= min(1, float(sqrt_kl(gaussian(p), gaussian(q))) + 1e-6)
    assert float(tv(gaussian((0, 1)), gaussian((50, 1)))) == pytest.approx(1)


@pytest.mark.parametrize(("p", "q"), LOGITS)
def test_categorical_tv_is_exact(p, q):
    expected = np.abs(special.softmax(p) - special.softmax(q)).sum() / 2
    assert float(tv(categorical(p), categorical(q))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_gaussian_wasserstein_is_that_of_the_quantile_functions(p, q):
    def squared(u):
        return (stats.norm.ppf(u, *p) - stats.norm.ppf(u, *q)) ** 2

    one = integrate.quad(squared, 0, 1, limit=200)[0]
    assert float(wasserstein(gaussian(p), gaussian(q))) == pytest.approx(one**0.5, rel=1e-4)
    two = wasserstein(gaussian(p, p), gaussian(q, q))
    assert float(two) == pytest.approx((2 * one) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(("p", "q"), LOGITS)
def test_categorical_wasserstein_is_the_cheapest_transport(p, q):
    """Moving mass to another action costs 1 (whose square is 1): a linear programme."""
    a, b = special.softmax(p), special.softmax(q)
    rows, columns = np.kron(np.eye(3), np.ones(3)), np.kron(np.ones(3), np.eye(3))
    plan = optimize.linprog(
        (1 - np.eye(3)).ravel(), np.zeros((0, 9)), [], np.vstack([rows, columns]), np.append(a, b)
    )
    result = float(wasserstein(categorical(p), categorical(q)))
    assert result**2 == pytest.approx(plan.fun, abs=1e-6)


def test_mahalanobis_is_in_deviations_of_the_first():
    p, q = gaussian((0, 0.5), (1, 2)), gaussian((1, 9), (-1, 9))
    assert float(mahalanobis(p, q)) == pytest.approx((2**2 + 1**2) ** 0.5)
    a, b = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    chi = float(mahalanobis(categorical(np.log(a)), categorical(np.log(b))))
    assert chi == pytest.approx((0.0625 / 0.5 + 0.0625 / 0.25) ** 0.5, rel=1e-5)


def test_the_authors_distance_is_root_two_times_the_papers():
    p, q = gaussian((0, 1)), gaussian((1, 1))
    assert float(sqrt_kl(p, q)) == pytest.approx(0.5)
    assert float(sqrt_kl_unhalved(p, q)) == pytest.approx(0.5**0.5)


@pytest.mark.parametrize("name", list(DISTANCES))
def test_every_distance_answers_for_each_state_and_is_zero_only_at_equality(name, numbers):
    distance = jax.jit(DISTANCES[name])
    for p, q in [
        (Gaussian(numbers[0], jnp.zeros(2)), Gaussian(numbers[1], jnp.full(2, 0.1))),
        (Categorical(numbers[0]), Categorical(numbers[1])),
    ]:
        result = distance(p, q)
        assert result.shape == (6,)
        assert (result > 0).all()
        np.testing.assert_allclose(distance(p, p), 0, atol=1e-6)


def test_safe_sqrt_is_the_root_with_gradient_zero_at_zero():
    x = jnp.array([4.0, 0.25, 0.0, 1e-9, -1e-9])
    np.testing.assert_allclose(safe_sqrt(x), [2, 0.5, 0, 0, 0])
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(safe_sqrt)))(x), [0.25, 1, 0, 0, 0])


def test_entropies_agree_with_scipy_and_with_numbers_by_hand(numbers):
    log_std = np.float32([0.3, -1.2])
    found = Gaussian(jnp.asarray(numbers[0]), jnp.asarray(log_std)).entropy()
    # Half of log(2 pi e) is 1.4189385 for each of two entries, and 0.3 - 1.2 of both.
    np.testing.assert_allclose(found, np.full(6, 2 * 1.4189385 - 0.9), rtol=1e-6)
    expected = stats.norm(0, np.exp(log_std)).entropy().sum()
    np.testing.assert_allclose(found, np.full(6, expected), rtol=1e-6)
    assert float(categorical([0.7, 0.7, 0.7, 0.7]).entropy()) == pytest.approx(1.3862944)
    # 1/4 and 3/4: log(4) - 3/4 log(3).
    assert float(categorical([0.0, float(np.log(3.0))]).entropy()) == pytest.approx(0.5623351)
    logits = numbers[1] * 3
    found = Categorical(jnp.asarray(logits)).entropy()
    np.testing.assert_allclose(found, stats.entropy(special.softmax(logits, -1), axis=-1), 1e-5)
