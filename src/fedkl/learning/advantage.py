"""Generalised advantage estimation and the critic's targets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from fedkl.arrays import Array


def advantages(
    reward: Float[Array, "h n"],
    value: Float[Array, "h n"],
    last_value: Float[Array, " n"],
    terminated: Bool[Array, "h n"],
    mask: Bool[Array, "h n"],
    discount: Float[Array, ""] | float,
    gae_lambda: Float[Array, ""] | float,
) -> Float[Array, "h n"]:
    """GAE(gamma, lambda) of whole episodes (Schulman et al. 2016).

    Args:
        reward: reward of each step.
        value: the critic's value of each step's state.
        last_value: its value of the state after the last step (0: the time limit ends it).
        terminated: true where the episode truly ended with that step.
        mask: false after an episode's end.
        discount: gamma.
        gae_lambda: lambda; with lambda = 1 the result plus `value` is the discounted return.

    Returns:
        The advantages, 0 where `mask` is false.
    """
    goes_on = ~terminated
    next_value = jnp.where(goes_on, jnp.concatenate([value[1:], last_value[None]]), 0.0)
    delta = jnp.where(mask, reward + discount * next_value - value, 0.0)

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, goes_on = now
        advantage = delta + discount * gae_lambda * goes_on * later
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(last_value), (delta, goes_on), reverse=True)[1]
