"""Anchored FedKL: keeps the local policy near the global one where the federation is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from fedkl.algorithms.base import Algorithm, RoundResult, register_algorithm
from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.io.arrays import AnyArray, Array, Scalar
from fedkl.learning.penalty import Coefficient, check_bounds, towards_target
from fedkl.learning.policy import Policy, whole, without
from fedkl.learning.policy_optimisation import HookInput
from fedkl.learning.settings import ALL, FEDERATED, LearnerSettings, Sharing
from fedkl.learning.statistics import Moments, correlation, excess, standardise

BLOCKS = 64
"""Of anchors in an iteration; its gradient steps take turns with them."""
MEASURED_ON = 2048
"""Anchors, at the end of a round."""
GIVEN_UP = 24
"""Observations that a client sends in a round, if anchors are shared ones."""
POOL = 1024
"""Observations that the server keeps then, the newest."""


class AnchorPool(NamedTuple):
    """Observations that clients have given up, the newest first."""

    states: Float[AnyArray, "p o"]
    filled: Int[AnyArray, ""]


class Anchors(NamedTuple):
    """States of an iteration, in blocks, and what pi^t's network says there."""

    states: Float[Array, "b a o"]
    broadcast: Float[Array, "b a n"]
    weight: Float[Array, "b a"] | None = None
    """The weight of each; None: 1."""


@register_algorithm
class FedKLAnchored(Algorithm):
    """Adds c_a E_anchor[ KL(pi^t || pi) ], where anchors are states that the federation visits, not
    those of the client alone: FedKL charges a client for what changes where it is itself, but its
    step does harm where the others are.

    Anchors are drawn anew in each iteration from a normal distribution with the mean and the
    covariance of all observations, which clients merge as they merge means and deviations. KL
    itself, not its root: the root's gradient does not fade near pi^t, and holds a policy there.

    Weighted anchors count by max(0, 1 - p_own(s) / p_all(s)): not at all where the client is as
    often as all together, so that clients that are alike pay little. They do not charge for what a
    client's personal part of the policy does, which nobody else gets.
    """

    name: ClassVar[str] = "fedkl-anchored"
    summary: ClassVar[str] = "adds c_a KL(pi^t || pi) on states drawn from the whole federation"

    d_anchor: float = setting(0.1, "target KL(pi^t || pi) on anchors after a round", above=0)
    c_a: float = setting(0.1, "first coefficient of the penalty on anchors", above=0)
    c_a_bounds: tuple[float, float] = setting((1e-3, 20.0), "range of c_a", above=0)
    anchors: str = setting(
        "normal",
        "where anchors come from: a normal distribution with the federation's mean and covariance, "
        "the same with its deviations alone, or observations that clients give up",
        choices=("normal", "diagonal", "shared"),
        static=True,
    )
    anchors_per_step: int = setting(32, "anchors in a gradient step", low=1, static=True)
    weighted: bool = setting(
        False,
        "an anchor counts by how much more all clients visit it than the client itself does",
        static=True,
    )

    def __check_init__(self) -> None:
        check_bounds("algorithm.c_a_bounds", self.c_a_bounds)

    @property
    def needs_covariance(self) -> bool:
        return self.anchors == "normal" or (self.weighted and self.anchors == "shared")

    @property
    def observations_sent(self) -> int:
        return GIVEN_UP if self.anchors == "shared" else 0

    @property
    def shares(self) -> bool:
        return self.anchors == "shared"

    @property
    def bounds_messages(self) -> bool:
        # Observations have the scale that they have, and are clipped where they are used.
        return not self.shares

    def check(self, learner: LearnerSettings, sharing: Sharing) -> None:
        if sharing.personal == ALL:
            raise UserError(
                f"federation.personal must not be all for {self.name}, which holds clients to each "
                "other: who learns alone has no others"
            )
        if sharing.observations != FEDERATED:
            raise UserError(
                f"federation.observation_statistics must be federated for {self.name}, not "
                f"{sharing.observations}: anchors are drawn from what all clients have seen"
            )

    def coefficients(self) -> dict[str, Coefficient]:
        # Averaged: a client is selected too rarely to find its own once a round.
        return {"c_a": Coefficient(self.c_a, self.c_a_bounds, "averaged", growth=2.0)}

    def prepare(self, now: HookInput, key: PRNGKeyArray) -> Anchors:
        size = self.anchors_per_step
        clip = now.learner.observation_clip
        states = self._draw(now.server_state, now.statistics, clip, BLOCKS * size, key)
        outputs = now.global_policy.network(states)

        def blocks(x: Array) -> Array:
            return x.reshape(BLOCKS, size, -1)

        weight = self._weight(now, states)
        each = None if weight is None else weight.reshape(BLOCKS, size)
        return Anchors(blocks(states), blocks(outputs), each)

    def penalty(self, at: HookInput) -> Float[Array, ""]:
        anchors: Anchors = jax.tree.map(lambda x: x[at.step % BLOCKS], at.prepared)
        there = at.global_policy.distribution(anchors.broadcast)
        divergence = there.kl(self._charged(at)(anchors.states))
        return at.coefficients["c_a"] * jnp.mean(_weighted(divergence, anchors.weight))

    def adapt_after_round(self, result: RoundResult) -> dict[str, Float[Array, ""]]:
        clip, c_a = result.learner.observation_clip, result.coefficients["c_a"]
        states = self._draw(result.server_state, result.statistics, clip, MEASURED_ON, result.key)
        divergence = result.global_policy(states).kl(self._charged(result)(states))
        measured = jnp.mean(_weighted(divergence, self._weight(result, states)))
        after = towards_target(c_a, measured, self.d_anchor, self.c_a_bounds)
        if self.weighted:
            after = jnp.where(_known(result.broadcast_statistics), after, c_a)
        return result.coefficients | {"c_a": after}

    def _charged(self, where: HookInput | RoundResult) -> Policy:
        """Return what the others get of a policy: its shared part, where anchors are weighted."""
        if not self.weighted:
            return where.policy
        return whole(without(where.policy, where.personal), where.personal)

    def _weight(
        self, where: HookInput | RoundResult, states: Float[Array, "a o"]
    ) -> Float[Array, " a"] | None:
        """Return what each anchor counts for; 0 while nobody but the client has seen anything."""
        if not self.weighted:
            return None
        assert where.statistics is not None
        assert where.seen is not None
        more = excess(where.statistics, where.seen, states)
        return jnp.where(_known(where.broadcast_statistics), more, 0.0)

    def _draw(
        self, shared: Any, known: Moments | None, clip: Scalar, number: int, key: PRNGKeyArray
    ) -> Float[Array, "a o"]:
        """Draw anchors, standardised like observations."""
        assert known is not None
        if self.anchors == "shared":
            # While no client has given up any, the one anchor is an observation of zeros.
            filled = jnp.maximum(shared.filled, 1)
            drawn = shared.states[jax.random.randint(key, (number,), 0, filled)]
            return standardise(known, drawn, clip)
        together, noise = correlation(known), jax.random.normal(key, (number, *known.mean.shape))
        if self.anchors == "diagonal":
            return jnp.clip(noise * jnp.sqrt(jnp.diag(together)), -clip, clip)
        values, vectors = jnp.linalg.eigh(together)
        # The symmetric root: that of a slightly different matrix differs slightly, whatever becomes
        # of the order and the signs of eigenvectors.
        root = (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T
        return jnp.clip(noise @ root, -clip, clip)

    def server_state(self, policy: Policy) -> AnchorPool | tuple[()]:
        if self.anchors != "shared":
            return ()
        inputs = policy.network.weights[0].shape[0]
        return AnchorPool(jnp.zeros((POOL, inputs)), jnp.zeros((), jnp.int32))

    def finish(self, result: RoundResult) -> tuple[Any, Any]:
        return result.client_state, () if result.sample is None else result.sample

    def gather(self, shared: Any, messages: Sequence[Any], clients: int) -> Any:
        if self.anchors != "shared" or not messages:
            return shared
        states = np.concatenate([*messages, shared.states])[:POOL]
        return AnchorPool(states, np.minimum(shared.filled + GIVEN_UP * len(messages), POOL))


def _weighted(divergence: Float[Array, " a"], weight: Float[Array, " a"] | None) -> Array:
    return divergence if weight is None else weight * divergence


def _known(moments: Moments | None) -> Bool[Array, ""]:
    """Return True if there is a distribution to draw anchors from."""
    assert moments is not None
    return jnp.asarray(moments.count > 1)
