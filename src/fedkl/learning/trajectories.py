"""Episodes as local training takes them, wherever they were run."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float

from fedkl.arrays import Array
from fedkl.worlds.base import AnyWorld


class Trajectories(NamedTuple):
    """n episodes of at most h steps. Entries after an episode's end have `mask` false, and are
    finite whatever the world answers there."""

    observation: Float[Array, "h n o"]
    action: Array
    reward: Float[Array, "h n"]
    terminated: Bool[Array, "h n"]
    mask: Bool[Array, "h n"]
    last_observation: Float[Array, "n o"]

    def returns(self) -> Float[Array, " n"]:
        """The undiscounted sum of each episode's rewards."""
        return jnp.sum(jnp.where(self.mask, self.reward, 0.0), axis=0)


def episodes_for(world: AnyWorld, steps: int) -> int:
    """How many whole episodes fill `steps` steps (at full length)."""
    return -(-steps // world.horizon)
