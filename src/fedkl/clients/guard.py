"""The guard: an iteration that leaves the trust region counts for nothing.

Doubling c2 instead would make plain SGD only less stable: once the policy's deviation is small, a
large c2 makes the objective steeper, not the step safer.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, PyTree

from fedkl.arrays import Array
from fedkl.learning.policy import Policy
from fedkl.learning.settings import LearnerSettings


class Guarded(NamedTuple):
    """What an iteration may change and the guard may take back."""

    policy: Policy
    policy_optimiser: PyTree
    coefficients: dict[str, Float[Array, ""]]
    step_scale: Float[Array, ""]


def guard(
    learner: LearnerSettings, before: Guarded, after: Guarded, kl_local: Float[Array, ""]
) -> tuple[Guarded, Bool[Array, ""]]:
    """What counts of an iteration, and whether it was rolled back.

    Outside the trust region the step counts for nothing, neither for the policy nor for the
    coefficients, and the step size is halved; inside, it recovers.
    """
    bound = learner.guard_multiple * learner.d_local
    guarded = learner.guard & ~(_finite(after.policy) & (kl_local <= bound))
    back = before._replace(step_scale=before.step_scale * 0.5)
    on = after._replace(step_scale=jnp.minimum(before.step_scale * 1.1, 1.0))
    return jax.tree.map(lambda b, o: jnp.where(guarded, b, o), back, on), guarded


def _finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))
