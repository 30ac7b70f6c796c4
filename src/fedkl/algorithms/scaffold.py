"""SCAFFOLD: corrects each client's drift by what the others would have done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedkl.algorithms.base import Algorithm, P, RoundResult, register_algorithm
from fedkl.core.errors import UserError
from fedkl.io.arrays import Array
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import HookInput
from fedkl.learning.settings import LearnerSettings, Sharing


@register_algorithm
class Scaffold(Algorithm):
    """Adds c - c_n to every local gradient (Karimireddy et al. 2020, Algorithm 1).

    c_n is client n's mean gradient of its last round, c the mean of all clients' c_n. So a client
    steps along its own gradient where it stands, with the part that is its alone replaced by the
    federation's. The paper's option II: c_n follows from how far the policy went.
    """

    name: ClassVar[str] = "scaffold"
    summary: ClassVar[str] = "adds c - c_n to local gradients: control variates on both sides"

    def check(self, learner: LearnerSettings, sharing: Sharing) -> None:
        if learner.optimiser != "sgd" or learner.max_gradient_norm != math.inf:
            raise UserError(
                "learner.optimiser must be sgd and learner.max_gradient_norm inf for scaffold, "
                "which reads the mean gradient off the way that the policy went"
            )

    def client_state(self, policy: Policy) -> Policy:
        """c_n = 0."""
        return jax.tree.map(jnp.zeros_like, policy)

    def server_state(self, policy: Policy) -> Policy:
        """c = 0."""
        return jax.tree.map(jnp.zeros_like, policy)

    def gradient(self, gradient: P, at: HookInput) -> P:
        # What is personal has no control variate: it is this client's alone.
        return jax.tree.map(
            lambda g, c, own: g if c is None else g + c - own,
            gradient,
            at.server_state,
            at.client_state,
        )

    def finish(self, result: RoundResult) -> tuple[Policy, Policy]:
        """c_n^+ = c_n - c + (theta^t - theta_n) / (sum of step sizes); the message is c_n^+ - c_n.

        A client that the guard let go nowhere has learnt nothing of its gradient.
        """
        moved = result.step_size_sum > 0
        sizes = jnp.where(moved, result.step_size_sum, 1.0)

        def change(c: Array, move: Array) -> Array:
            return jnp.where(moved, -move / sizes - c, 0.0)

        message = jax.tree.map(change, result.server_state, result.move)
        return jax.tree.map(jnp.add, result.client_state, message), message

    def gather(self, shared: Policy, messages: Sequence[Policy], clients: int) -> Policy:
        """c + (1 / N) sum_n (c_n^+ - c_n)."""

        def summed(c: np.ndarray, *changes: np.ndarray) -> np.ndarray:
            total = sum(np.asarray(change, np.float64) for change in changes)
            return np.asarray(c + total / clients, c.dtype)

        return jax.tree.map(summed, shared, *messages) if messages else shared
