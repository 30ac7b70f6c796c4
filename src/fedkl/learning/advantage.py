"""Generalised advantage estimation and the critic's targets."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from fedkl.arrays import Array


class Steps(NamedTuple):
    """Columns of steps as the estimator sees them.

    Three things can be after a step that is the last of its episode in the data. A true end is
    worth nothing (`next_value` 0). A time limit is worth what the settings say. A cut, where only
    the data end, is worth the value of what would have come. None of them `continues`.
    """

    reward: Float[Array, "h n"]
    value: Float[Array, "h n"]
    """The critic's, of the state that a step starts from."""
    next_value: Float[Array, "h n"]
    """Of the state that it leads to."""
    continues: Bool[Array, "h n"]
    """Whether the next row is the same episode's next step."""
    mask: Bool[Array, "h n"]
    """Which entries count."""


def advantages(
    steps: Steps, discount: Float[Array, ""] | float, gae_lambda: Float[Array, ""] | float
) -> Float[Array, "h n"]:
    """GAE(gamma, lambda) (Schulman et al. 2016).

    Args:
        steps: rewards, values, and where episodes end.
        discount: gamma.
        gae_lambda: lambda; with lambda = 1 the result plus `value` is the discounted return.

    Returns:
        The advantages, 0 where `mask` is false.
    """
    delta = steps.reward + discount * steps.next_value - steps.value
    delta = jnp.where(steps.mask, delta, 0.0)

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, continues = now
        advantage = delta + discount * gae_lambda * continues * later
        return advantage, advantage

    nothing = jnp.zeros_like(delta[0])
    # A row of an agent that waits takes nothing from the episode after it.
    continues = steps.continues & steps.mask
    return jax.lax.scan(backwards, nothing, (delta, continues), reverse=True)[1]
