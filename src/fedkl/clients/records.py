"""Records of a client: what it is sent, keeps and sends back, and what its round carries along.

`PARTS` is the one place that says of each part of the model what it is; from that follows how it is
checked, combined and stored:

| kind | is | the server |
|---|---|---|
| network | the parameters of a network | checks how far it moved, transforms, reduces, steps |
| moments | count, mean and squares of new data | checks them, merges them, keeps them in float64 |
| coefficients | adaptive penalty coefficients | checks their bounds, reduces |
| shared | what the algorithm broadcasts | hands the clients' messages to `Algorithm.gather` |
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from fedkl.algorithms.base import Algorithm
from fedkl.clients.learner import Learner
from fedkl.clients.upload import UploadChain
from fedkl.io.arrays import AnyArray, Array, mismatch, to_arrays
from fedkl.learning import critic as critics
from fedkl.learning import statistics
from fedkl.learning.critic import CriticBatch
from fedkl.learning.penalty import Coefficient
from fedkl.learning.policy import MLP, Policy, personal_part, without
from fedkl.learning.settings import FEDERATED, LOCAL, CriticSettings, Sharing
from fedkl.learning.statistics import Moments
from fedkl.worlds.base import AnyWorld


class Kind(Enum):
    """The kind of a part of the model."""

    NETWORK = "network"
    MOMENTS = "moments"
    COEFFICIENTS = "coefficients"
    SHARED = "shared"


PARTS = {
    "policy": Kind.NETWORK,
    "critic": Kind.NETWORK,
    "observations": Kind.MOMENTS,
    "rewards": Kind.MOMENTS,
    "coefficients": Kind.COEFFICIENTS,
    "shared": Kind.SHARED,
}
"""Every field of `Model`."""


class Task(eqx.Module):
    """All that is the same for every client and round: the world, the algorithm, the settings."""

    world: AnyWorld
    algorithm: Algorithm
    learner: Learner
    critic: CriticSettings
    upload: UploadChain = UploadChain()
    """The links that an update goes through before it leaves the client."""

    def coefficients(self) -> dict[str, Coefficient]:
        """Those of the learner (c2) and of the algorithm."""
        return self.learner.coefficients() | self.algorithm.coefficients()


class Model(eqx.Module):
    """The server's model, which is sent to the selected clients.

    A part that a config keeps on the clients is None here, and a part it shares is None in
    `ClientState`; so are the parts of the policy that are personal.
    """

    policy: Policy
    critic: MLP | None
    observations: Moments | None
    rewards: Moments | None
    coefficients: dict[str, Float[AnyArray, ""]]
    """The adaptive coefficients that the server averages (none unless configured)."""
    shared: PyTree
    """The algorithm's `server_state`, by the name that it has in checkpoints."""

    def networks(self) -> dict[str, PyTree]:
        """Return the networks by name, but for those that stay on the clients as a whole."""
        parts = {name: getattr(self, name) for name, kind in PARTS.items() if kind is Kind.NETWORK}
        return {name: part for name, part in parts.items() if jax.tree.leaves(part)}


class CriticState(NamedTuple):
    """A critic that stays on its client, with its optimiser's state."""

    critic: MLP
    optimiser: PyTree


class ClientState(eqx.Module):
    """A client's memory between the rounds it takes part in; it never leaves the client."""

    coefficients: dict[str, Float[Array, ""]]
    """c2 and whatever the algorithm adapts (c1 for FedKL)."""
    step_scale: Float[Array, ""]
    """Factor on the policy's step size; below 1 after the guard acted."""
    iterations: Int[Array, ""]
    """Local iterations this client has finished in its life."""
    critic: CriticState | None
    observations: Moments | None
    rewards: Moments | None
    personal: Policy | None
    """The part of the policy that is this client's alone."""
    own: PyTree
    """The algorithm's `client_state`, by the name that it has in checkpoints."""


class Update(eqx.Module):
    """A client's reply: its model, where the moments hold its new data only."""

    model: Model
    """Without `shared`, for which there is the message."""
    weight: Float[AnyArray, ""]
    """l_k: the steps this client trained on in the round."""
    message: PyTree
    """The algorithm's message to its server's side."""


Metrics = dict[str, Any]
OF_ITERATION = ("kl_local", "distance_global", "guarded", "steps", "train_return", "outliers")
"""Metrics that every learner has of each iteration."""
METRICS = frozenset(OF_ITERATION) | {"coefficients", "step_scale"}
"""Those of a round; a learner may have more (`Learner.logged`)."""


class Start(NamedTuple):
    """A client's starting point, which stays as it is until the round's end."""

    model: Model
    """The broadcast model (pi^t)."""
    client: ClientState
    """Its own state before the round."""
    key: PRNGKeyArray
    """Folded from seed, round and client; the iteration is folded in here."""


class Carry(NamedTuple):
    """The values that one iteration hands to the next."""

    policy: Policy
    policy_optimiser: PyTree
    critic: MLP
    critic_optimiser: PyTree
    coefficients: dict[str, Float[Array, ""]]
    step_scale: Float[Array, ""]
    iterations: Int[Array, ""]
    step_size_sum: Float[Array, ""]
    """The sum of the factors on the step size, over all gradient steps that count."""
    observations: Moments | None
    """New observations of this round only."""
    rewards: Moments | None
    replay: CriticBatch | None
    """The previous iteration's critic batch, when it is replayed."""
    sample: Float[Array, "s o"] | None
    """Some of the iteration's observations, if the algorithm asks for them."""


class Trained(NamedTuple):
    """The result of a client's round."""

    update: Update
    """For the server."""
    metrics: Metrics
    """Of each iteration (`kl_local`, `distance_global`, `guarded`), and the last coefficients."""


Networks = tuple[Policy, MLP | None]
"""A policy and its critic, if the learner has one."""


def first_states(
    task: Task, sharing: Sharing, key: PRNGKeyArray, networks: Networks | None = None
) -> tuple[Model, ClientState]:
    """The model and every client's state before the first round, as NumPy arrays.

    Args:
        task: with the world, algorithm and settings.
        sharing: says who keeps which part.
        key: of new networks.
        networks: those to start from; None: new ones.
    """
    return jax.device_get(_first_states(task, sharing, key, networks))


@partial(jax.jit, static_argnames="sharing")
def _first_states(
    task: Task, sharing: Sharing, key: PRNGKeyArray, networks: Networks | None
) -> tuple[Model, ClientState]:
    policy, critic = networks or task.learner.networks(task.world, task.critic, key)
    own_critic = None
    if critic is not None:
        own_critic = CriticState(critic, critics.optimiser(task.critic).init(critic))
    observations = statistics.empty(
        task.world.observation_size, products=task.algorithm.needs_covariance
    )
    rewards = statistics.empty()
    coefficients = first_coefficients(task)
    personal = personal_part(policy, sharing.personal)
    sent = without(policy, personal)

    def where(place: str, wanted: str, thing: PyTree) -> PyTree:
        return thing if place == wanted else None

    model = Model(
        policy=sent,
        critic=where(sharing.critic, FEDERATED, critic),
        observations=where(sharing.observations, FEDERATED, observations),
        rewards=where(sharing.rewards, FEDERATED, rewards),
        coefficients={
            name: coefficients[name]
            for name, c in task.coefficients().items()
            if c.across_rounds == "averaged"
        },
        shared=task.algorithm.server_state(sent),
    )
    client = ClientState(
        coefficients=coefficients,
        step_scale=jnp.ones(()),
        iterations=jnp.zeros((), jnp.int32),
        critic=where(sharing.critic, LOCAL, own_critic),
        observations=where(sharing.observations, LOCAL, observations),
        rewards=where(sharing.rewards, LOCAL, rewards),
        personal=personal,
        own=task.algorithm.client_state(sent),
    )
    return model, client


def first_coefficients(task: Task) -> dict[str, Float[Array, ""]]:
    """The coefficients as they start."""
    return {name: jnp.asarray(c.first, jnp.float32) for name, c in task.coefficients().items()}


def problem_with_state(before: ClientState, after: ClientState) -> str | None:
    """Return why a client must not keep a new state, or None if it may.

    A number in it that is not finite would spoil all its later rounds.
    """
    kept = to_arrays(after)
    if problem := mismatch(to_arrays(before), kept):
        return f"state.{problem}"
    for name, array in kept.items():
        if not np.all(np.isfinite(array)):
            return f"state.{name} is not finite"
    return None
