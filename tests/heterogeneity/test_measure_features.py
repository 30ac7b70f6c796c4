import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.heterogeneity.measure import buckets, centred, fourier, over_actions
from fedkl.learning.distributions import Categorical, Gaussian

STATES = jax.random.normal(jax.random.key(5), (7, 3, 4))


@pytest.mark.parametrize("basis", [fourier, buckets])
def test_a_state_has_the_same_features_whoever_asks_and_in_whatever_batch(basis):
    together = jax.jit(basis, static_argnums=(1, 2))(STATES, 16, 1.0)
    assert together.shape == (7, 3, 16)
    alone = basis(np.asarray(STATES[2, 1]), 16, 1.0)
    np.testing.assert_allclose(together[2, 1], alone, atol=1e-6)


def test_products_of_fourier_features_are_close_to_a_gaussian_kernel():
    x = STATES.reshape(-1, 4)
    features = fourier(x, 20_000, 0.5)
    squares = jnp.sum((x[:, None] - x[None]) ** 2, axis=-1)
    # A length scale of 0.5 in each of four entries is a distance of 1.
    np.testing.assert_allclose(features @ features.T, jnp.exp(-squares / 2), atol=0.03)


def test_the_first_fourier_feature_is_constant():
    np.testing.assert_allclose(fourier(STATES, 8, 1.0)[..., 0], 0.5)  # sqrt(2 / 8)


@pytest.mark.parametrize("states", [np.eye(100), np.arange(100.0)[:, None]])
def test_every_one_hot_or_numbered_state_has_a_bucket_of_its_own(states):
    found = buckets(jnp.asarray(states, jnp.float32), 100, 1.0)
    np.testing.assert_array_equal(np.sort(np.argmax(found, axis=-1)), np.arange(100))
    np.testing.assert_array_equal(jnp.sum(found, axis=-1), 1)


def test_states_in_one_cell_share_a_bucket_and_others_hardly_ever():
    corners = jnp.stack(jnp.meshgrid(*[jnp.arange(-3.0, 4.0)] * 3), axis=-1).reshape(-1, 3)
    at = np.argmax(buckets(0.5 * corners, 4001, 0.5), axis=-1)
    near = np.argmax(buckets(0.5 * corners + 0.2, 4001, 0.5), axis=-1)
    np.testing.assert_array_equal(at, near)
    assert len(set(at.tolist())) > 0.9 * len(corners)


def test_functions_of_finitely_many_actions_have_mean_0_under_the_policy():
    actions = Categorical(jax.random.normal(jax.random.key(1), (6, 3)))
    each = jnp.stack([centred(actions, jnp.full(6, a)) for a in range(3)])
    mean = jnp.einsum("ba,abk->bk", jax.nn.softmax(actions.logits), each)
    np.testing.assert_allclose(mean, 0, atol=1e-6)


def test_functions_of_gaussian_actions_are_orthonormal_with_mean_0_under_the_policy():
    points, weights = np.polynomial.hermite_e.hermegauss(8)
    noise = np.stack(np.meshgrid(points, points), axis=-1).reshape(-1, 2)
    density = np.outer(weights, weights).reshape(-1) / np.sum(weights) ** 2
    mean, log_std = jnp.array([0.3, -2.0]), jnp.array([-1.0, 0.5])
    actions = Gaussian(jnp.broadcast_to(mean, noise.shape), log_std)
    found = centred(actions, jnp.asarray(mean + jnp.exp(log_std) * noise, jnp.float32))
    np.testing.assert_allclose(density @ found, 0, atol=1e-5)
    np.testing.assert_allclose(found.T @ (density[:, None] * found), np.eye(4), atol=1e-4)


def test_an_advantage_over_finitely_many_actions():
    """pi = (1/4, 3/4) and weights (4, 0): the mean is 1, the advantage 3 and -1."""
    actions = Categorical(jnp.log(jnp.array([[0.25, 0.75]])))
    alike, taken = over_actions(actions, jnp.array([[4.0, 0.0]]))
    np.testing.assert_allclose(alike, [[3, -1]], rtol=1e-6)
    np.testing.assert_allclose(taken, [[0.75, -0.75]], rtol=1e-6)
