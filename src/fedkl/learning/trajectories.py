"""Episodes as local training takes them, wherever they were run."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from fedkl.io.arrays import Array
from fedkl.learning.settings import RoundSettings
from fedkl.worlds.base import AnyWorld


class Trajectories(NamedTuple):
    """n columns of h steps, where h is the world's time limit.

    A column is one whole episode (`Source.collect`), or an episode and those that were begun after
    it ended, the last of which is cut (`Source.fill`). Entries that do not count, after an only
    episode's end or beyond the steps that were asked for, have `mask` false, and are finite
    whatever the world answers there.
    """

    observation: Float[Array, "h n o"]
    action: Array
    reward: Float[Array, "h n"]
    terminated: Bool[Array, "h n"]
    """True where an episode truly ended with that step."""
    mask: Bool[Array, "h n"]
    last_observation: Float[Array, "n o"]
    """After the last step of each column."""
    truncated: Bool[Array, "h n"] | None = None
    """True where a limit of the world's own cut an episode off with that step; None: nowhere."""
    after: Float[Array, "h n o"] | None = None
    """The observation after a step that is `truncated`; None as that is."""

    def ended(self) -> Bool[Array, "h n"]:
        """Mark the steps with which an episode was over before the column's time limit."""
        return self.terminated if self.truncated is None else self.terminated | self.truncated

    def elapsed(self) -> Int[Array, "h n"]:
        """Return the number of steps that each step has behind it in its episode."""
        row = jnp.arange(self.reward.shape[0])[:, None]
        # Where several agents share a world, one that is gone waits for the next episode.
        begun = jnp.where(self.ended() | ~self.mask, row + 1, 0)
        begun = jnp.concatenate([jnp.zeros_like(begun[:1]), begun[:-1]])
        return row - jax.lax.cummax(begun)

    def returns(self) -> Float[Array, " n"]:
        """The undiscounted sum of each column's rewards: the return, where it is an episode."""
        return jnp.sum(jnp.where(self.mask, self.reward, 0.0), axis=0)

    def mean_return(self) -> Float[Array, ""]:
        """The mean return of the episodes that ended; NaN if none did."""
        last = self.elapsed()[-1] == self.reward.shape[0] - 1
        over = self.mask & self.ended().at[-1].max(last)
        # All that comes before the last end of a column belongs to an episode that ended.
        counts = jax.lax.cummax(over.astype(jnp.int8), axis=0, reverse=True) > 0
        return jnp.sum(jnp.where(counts, self.reward, 0.0)) / jnp.sum(over)


def columns_for(world: AnyWorld, steps: int) -> int:
    """Return the number of columns of the world's time limit that hold `steps` steps."""
    return -(-steps // world.horizon)


def samples_in(world: AnyWorld, learner: RoundSettings) -> int:
    """Return the number of samples in an iteration's data, with those that do not count."""
    if learner.collect == "steps":
        return learner.steps
    return columns_for(world, learner.steps) * world.horizon


def drawn(
    number: int, observation: Float[Array, "h n o"], mask: Bool[Array, "h n"], key: PRNGKeyArray
) -> Float[Array, "s o"]:
    """Draw observations of steps that count: different ones as far as there are so many."""
    # The largest of random numbers, padding last.
    lots = jnp.where(mask, jax.random.uniform(key, mask.shape), -1.0).reshape(-1)
    first = jnp.argsort(-lots)[jnp.arange(number) % jnp.maximum(jnp.sum(mask), 1)]
    return observation.reshape(-1, observation.shape[-1])[first]


def first(steps: int, rows: int, columns: int) -> Bool[Array, "h n"]:
    """Mark the first `steps` entries, column by column."""
    return jnp.arange(rows)[:, None] + rows * jnp.arange(columns) < steps
