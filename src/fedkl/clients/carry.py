"""What a client's round starts from, and what one iteration hands to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from fedkl.arrays import Array
from fedkl.clients.acting import Behaviour
from fedkl.clients.state import ClientState, Metrics, Model, Task, Update, first_coefficients
from fedkl.learning import critic, statistics
from fedkl.learning.networks import MLP
from fedkl.learning.personal import whole
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import optimiser
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import samples_in


class Start(NamedTuple):
    """What a client starts its round from, and what stays as it is until the round's end."""

    model: Model
    """What was broadcast (pi^t)."""
    client: ClientState
    """Its own state before the round."""
    key: PRNGKeyArray
    """Folded from seed, round and client; the iteration is folded in here."""


class Carry(NamedTuple):
    """What one iteration hands to the next."""

    policy: Policy
    policy_optimiser: PyTree
    critic: MLP
    critic_optimiser: PyTree
    coefficients: dict[str, Float[Array, ""]]
    step_scale: Float[Array, ""]
    iterations: Int[Array, ""]
    travelled: Float[Array, ""]
    """The sum of the factors on the step size, over all gradient steps that count."""
    observations: Moments | None
    """New observations of this round only."""
    rewards: Moments | None
    replay: critic.CriticBatch | None
    """The previous iteration's critic batch, when it is replayed."""
    sample: Float[Array, "s o"] | None
    """Some of the iteration's observations, if the algorithm asks for them."""


class Cleaned(NamedTuple):
    """An iteration's data as they enter the running statistics: without outliers."""

    observation: Float[Array, "h n o"]
    reward: Float[Array, "h n"]


class Keys(NamedTuple):
    """The randomness of an iteration."""

    run: PRNGKeyArray
    policy: PRNGKeyArray
    critic: PRNGKeyArray


class Trained(NamedTuple):
    """What comes of a round."""

    update: Update
    """For the server."""
    metrics: Metrics
    """Of each iteration (`kl_local`, `distance_global`, `guarded`), and the last coefficients."""


def keys_of(key: PRNGKeyArray, index: Array | int) -> Keys:
    """The keys of an iteration of the round whose key is given."""
    run, policy, critic = jax.random.split(jax.random.fold_in(key, index), 3)
    return Keys(run, policy, critic)


def seen_with(model: Model, client: ClientState) -> Moments | None:
    """The statistics that a client's observations are standardised with: the server's, or its own.

    A client that keeps statistics of its own goes by them.
    """
    return model.observations if client.observations is None else client.observations


def policy_of(model: Model, client: ClientState) -> Policy:
    """pi^t as a client has it: what the server sent, with the client's personal part."""
    return whole(model.policy, client.personal)


def behaviour(task: Task, start: Start, carry: Carry) -> Behaviour:
    """How a client acts in an iteration."""
    return Behaviour(task.learner, carry.policy, seen_in(task, start, carry), carry.iterations)


def following(
    task: Task, model: Model, client: ClientState, deterministic: bool = False
) -> Behaviour:
    """How a client acts that follows the global policy."""
    seen = seen_with(model, client)
    policy = policy_of(model, client)
    return Behaviour(task.learner, policy, seen, client.iterations, deterministic)


def begin(task: Task, start: Start) -> Carry:
    """What a client's first iteration starts with."""
    model, client, _ = start
    first: dict[str, dict[str, Any]] = {
        "kept": client.coefficients,
        "averaged": model.coefficients,
        "reset": first_coefficients(task),
    }
    value_net = model.critic if client.critic is None else client.critic.critic
    assert value_net is not None
    policy = policy_of(model, client)
    return Carry(
        policy=policy,
        policy_optimiser=optimiser(task.learner).init(policy),
        critic=value_net,
        # A shared critic arrives with another average each round: old Adam moments would be stale.
        critic_optimiser=critic.optimiser(task.critic).init(value_net)
        if client.critic is None
        else client.critic.optimiser,
        coefficients={n: first[c.across_rounds][n] for n, c in task.coefficients().items()},
        step_scale=client.step_scale,
        iterations=client.iterations,
        travelled=jnp.zeros(()),
        observations=_none_yet(seen_with(model, client)),
        rewards=_none_yet(known_rewards(start)),
        replay=_no_replay(task) if task.critic.replay_previous else None,
        sample=_no_sample(task),
    )


def seen_in(task: Task, start: Start, carry: Carry) -> Moments | None:
    """The statistics that a client's observations are standardised with in an iteration."""
    before = seen_with(start.model, start.client)
    if task.learner.statistics_from == "round":
        return before
    return merged(before, carry.observations)


def known_rewards(start: Start) -> Moments | None:
    own = start.client.rewards
    return start.model.rewards if own is None else own


def merged(a: Moments | None, b: Moments | None) -> Moments | None:
    return None if a is None or b is None else statistics.merge(a, b)


def _none_yet(moments: Moments | None) -> Moments | None:
    """Empty moments to collect into, if such moments are kept."""
    return None if moments is None else jax.tree.map(lambda x: jnp.zeros(x.shape), moments)


def _no_replay(task: Task) -> critic.CriticBatch:
    """A batch of padding, as large as an iteration's."""
    samples = samples_in(task.world, task.learner)
    return critic.CriticBatch(
        jnp.zeros((samples, critic.inputs(task.world, task.critic))),
        jnp.zeros(samples),
        jnp.zeros(samples),
    )


def _no_sample(task: Task) -> Float[Array, "s o"] | None:
    number = task.algorithm.observations_sent
    return jnp.zeros((number, task.world.observation_size)) if number else None
