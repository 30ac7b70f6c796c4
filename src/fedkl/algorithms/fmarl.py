"""FMARL: later local gradients of a round count for less."""

from __future__ import annotations

from typing import ClassVar

import jax

from fedkl.algorithms.base import Algorithm, P, register_algorithm
from fedkl.core.settings import setting
from fedkl.learning.policy_optimisation import HookInput


@register_algorithm
class FMARL(Algorithm):
    """Multiplies the j-th local gradient of a round by lambda^(j/2) (Xu et al. 2021)."""

    name: ClassVar[str] = "fmarl"
    summary: ClassVar[str] = "multiplies the j-th local gradient of the round by lambda^(j/2)"

    decay: float = setting(0.9999, "lambda", above=0, high=1)
    counter: str = setting(
        "step",
        "what j counts: gradient steps, or (as the authors' code) every variable of every step",
        choices=("step", "variable"),
        static=True,
    )

    def gradient(self, gradient: P, at: HookInput) -> P:
        leaves, structure = jax.tree.flatten(gradient)
        counts = (
            [at.step] * len(leaves)
            if self.counter == "step"
            else [at.step * len(leaves) + v for v in range(len(leaves))]
        )
        decayed = [g * self.decay ** (j / 2) for g, j in zip(leaves, counts, strict=True)]
        return jax.tree.unflatten(structure, decayed)
