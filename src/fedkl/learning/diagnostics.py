"""Diagnostics of an iteration, logged beside its divergences: nothing depends on them.

All of it is of data at hand, once in an iteration. A norm of every gradient would cost a few
percent of a step, so that of one minibatch stands for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedkl.io.arrays import Array
from fedkl.learning.critic import CriticBatch
from fedkl.learning.minibatches import weighted_mean
from fedkl.learning.policy_optimisation import HookInput, descent_direction

if TYPE_CHECKING:
    from fedkl.algorithms.base import Algorithm

DIAGNOSTICS = ("value_loss", "explained_variance", "entropy", "gradient_norm", "clip_fraction")

LARGEST = 1e15
"""The largest number that is logged: one beyond must not cost a client its round."""


def diagnose(
    algorithm: Algorithm,
    now: HookInput,
    at: HookInput,
    value: Float[Array, " m"],
    targets: CriticBatch,
) -> dict[str, Float[Array, ""]]:
    """Return all diagnostics of an iteration; NaN where there is no such number.

    Args:
        algorithm: adds its penalty.
        now: the start of the iteration.
        at: its end, with pi_i on the whole batch.
        value: the critic's of each sample, before it is fitted to them.
        targets: its targets.
    """
    found = _of_critic(value, targets) | {
        "entropy": weighted_mean(at.actions.entropy(), at.batch.weight),
        "gradient_norm": _gradient_norm(algorithm, now, at),
        "clip_fraction": _clip_fraction(at),
    }
    # NaN is not below anything.
    return {name: jnp.where(jnp.abs(x) <= LARGEST, x, jnp.nan) for name, x in found.items()}


def _of_critic(value: Float[Array, " m"], targets: CriticBatch) -> dict[str, Float[Array, ""]]:
    """The mean squared error, and the share of the targets' variance that is no error's."""
    error = targets.target - value
    left, all_of_it = (_variance(x, targets.weight) for x in (error, targets.target))
    return {
        "value_loss": weighted_mean(error**2, targets.weight),
        "explained_variance": jnp.where(all_of_it > 0, 1 - left / all_of_it, jnp.nan),
    }


def _variance(x: Float[Array, " m"], weight: Float[Array, " m"]) -> Float[Array, ""]:
    return weighted_mean((x - weighted_mean(x, weight)) ** 2, weight)


def _gradient_norm(algorithm: Algorithm, now: HookInput, at: HookInput) -> Float[Array, ""]:
    """At pi_i on a minibatch that is spread over the whole batch, before it is shortened."""
    samples = len(at.batch.weight)
    size = min(at.learner.minibatch, samples)
    part = jax.tree.map(lambda x: x[:: samples // size][:size], at.batch)
    gradient = descent_direction(algorithm, now, at.policy, part, at.step)
    return jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(gradient)))


def _clip_fraction(at: HookInput) -> Float[Array, ""]:
    """The share of importance ratios that are outside of their bounds at pi_i."""
    ratio = jnp.exp(at.actions.log_prob(at.batch.action) - at.batch.log_prob)
    low, high = at.learner.ratio_bounds
    outside = ((ratio < low) | (ratio > high)).astype(ratio.dtype)
    return weighted_mean(outside, at.batch.weight)
