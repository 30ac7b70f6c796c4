"""FedProx: keeps local parameters near the global ones."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedkl.algorithms.base import Algorithm, register_algorithm
from fedkl.core.settings import setting
from fedkl.io.arrays import Array
from fedkl.learning.policy_optimisation import HookInput


@register_algorithm
class FedProx(Algorithm):
    """Adds the proximal term mu/2 ||theta - theta^t||^2 (Li et al. 2020): a penalty in parameter
    space, where FedKL's is in distribution space."""

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "adds mu/2 ||theta - theta^t||^2, a penalty in parameter space"

    mu: float = setting(0.02, "weight of the proximal term", low=0)
    mu_factor: float = setting(
        0.5, "factor on mu ||theta - theta^t||^2 (the authors' code has 0.25)", above=0
    )

    def penalty(self, at: HookInput) -> Float[Array, ""]:
        gaps = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), at.policy, at.global_policy)
        return self.mu * self.mu_factor * jax.tree.reduce(jnp.add, gaps)
