"""The critic's regression."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkl.learning.critic import (
    CriticBatch,
    improve_critic,
    inputs,
    new_critic,
    optimiser,
    values,
    with_time,
)
from fedkl.learning.settings import CriticSettings
from fedkl.worlds import Chain

KEY = jax.random.key(0)
TABLE = CriticSettings(hidden=(), learning_rate=0.05, epochs=500, minibatch=10)
TARGETS = jnp.array([3.0, -1.0, 0.0, 2.0, 0.5])
PADDED = CriticBatch(
    jnp.concatenate([jnp.eye(5), 77 * jnp.ones((5, 5))]),
    jnp.concatenate([TARGETS, -1e6 * jnp.ones(5)]),
    jnp.repeat(jnp.array([1.0, 0.0]), 5),
)
improve = jax.jit(improve_critic)


def improved(settings, batch, critic=None):
    critic = new_critic(Chain(), settings, KEY) if critic is None else critic
    return improve(settings, critic, optimiser(settings).init(critic), batch, KEY)


def test_learns_its_targets_from_the_real_samples_only():
    critic, state = improved(TABLE, PADDED)
    np.testing.assert_allclose(values(critic, jnp.eye(5)), TARGETS, atol=0.01)
    assert int(state[0].count) == 500


def test_the_first_step_of_adam_has_the_step_sizes_length_against_the_gradient():
    """With the targets met, only the squared weights pull: weights shrink and biases stay."""
    settings = CriticSettings(hidden=(), learning_rate=0.1, epochs=1, minibatch=10, l2=0.5)
    critic = jax.tree.map(lambda x: x + 2.0, new_critic(Chain(), settings, KEY))
    met = PADDED._replace(target=values(critic, PADDED.observation))
    after, _ = improved(settings, met, critic)
    np.testing.assert_allclose(after.weights[0], critic.weights[0] - 0.1, rtol=1e-5)
    np.testing.assert_array_equal(after.biases[0], critic.biases[0])


def test_the_l2_weight_is_that_of_the_squared_weights():
    """One weight per state: minimising (w - y)^2 / 5 + l2 w^2 (no bias) gives y / (1 + 5 l2)."""
    settings = CriticSettings(hidden=(), learning_rate=0.02, epochs=500, minibatch=10, l2=0.2)
    # Targets that add to 0 leave the bias at 0.
    y = jnp.array([3.0, -3.0, 0.0, 2.0, -2.0])
    target = PADDED.target.at[:5].set(y)
    critic, _ = improved(settings, PADDED._replace(target=target))
    assert float(critic.biases[0][0]) == pytest.approx(0, abs=0.02)
    np.testing.assert_allclose(critic.weights[0][:, 0], y / 2, atol=0.02)


def test_has_one_value_for_each_state():
    critic = jax.eval_shape(lambda: new_critic(Chain(), CriticSettings(hidden=(4, 3)), KEY))
    assert jax.eval_shape(values, critic, jnp.ones((2, 7, 5))).shape == (2, 7)
    assert [w.shape for w in critic.weights] == [(5, 4), (4, 3), (3, 1)]


# A critic that sees the time left.


def test_time_left_goes_from_1_to_minus_1_by_step():
    """Of 4 steps, all, 3/4, 1/2 and 1/4 are left: 1, 1/2, 0 and -1/2; none would be -1."""
    observation = jnp.arange(4 * 2 * 3, dtype=float).reshape(4, 2, 3)
    seen = with_time(observation, jnp.broadcast_to(jnp.arange(4)[:, None], (4, 2)), 4)
    assert seen.shape == (4, 2, 4)
    np.testing.assert_array_equal(seen[..., :3], observation)
    for episode in range(2):
        assert seen[:, episode, 3].tolist() == [1, 0.5, 0, -0.5]
    assert seen.dtype == observation.dtype


def test_time_left_is_one_number_more():
    told, untold = CriticSettings(hidden=(4,), sees_time=True), CriticSettings(hidden=(4,))
    assert (inputs(Chain(), told), inputs(Chain(), untold)) == (6, 5)
    critic = jax.eval_shape(lambda: new_critic(Chain(), told, KEY))
    assert [w.shape for w in critic.weights] == [(6, 4), (4, 1)]
