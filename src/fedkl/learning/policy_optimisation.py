"""The paper's local objective h_n and the gradient steps on it.

For one iteration of one client, with pi the policy being trained, pi_{i-1} the one that collected
the data and pi^t the global one (the paper's eq. 24):

    h_n = E[ pi(a|s) / pi_{i-1}(a|s) A(s, a) ] - penalty - c2 E[ KL(pi_{i-1} || pi) ]

where `penalty` is what the algorithm adds: c1 E[ sqrt(KL(pi^t || pi) / 2) ] for FedKL. An entropy
bonus is not in the paper, and is added if a config asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from fedkl.io.arrays import Array
from fedkl.learning import minibatches
from fedkl.learning.distributions import Distribution
from fedkl.learning.minibatches import weighted_mean
from fedkl.learning.policy import Policy
from fedkl.learning.settings import LearnerSettings
from fedkl.learning.statistics import Moments

if TYPE_CHECKING:
    from fedkl.algorithms.base import Algorithm


class PolicyBatch(NamedTuple):
    """The policy's data: an iteration's steps, in no order."""

    observation: Float[Array, "m o"]
    action: Array
    advantage: Float[Array, " m"]
    log_prob: Float[Array, " m"]
    """log pi_{i-1}(a | s)."""
    previous: Float[Array, "m n"]
    """Output of pi_{i-1}'s network."""
    broadcast: Float[Array, "m n"]
    """Output of pi^t's network."""
    weight: Float[Array, " m"]
    """1 for a real step, 0 for padding after an episode's end."""


class HookInput(NamedTuple):
    """All that an algorithm's hooks may look at: the local policy pi beside the global one pi^t on
    a batch of states, and where in the round that is.

    `prepare` is given the state of things at the start of an iteration: pi is still pi_{i-1}, and
    the batch is the whole one. What a hook does not look at costs nothing: it is not computed.
    """

    learner: LearnerSettings
    coefficients: dict[str, Float[Array, ""]]
    """c2 and those of the algorithm."""
    client_state: Any
    """The algorithm's state on this client."""
    server_state: Any
    """The algorithm's state at the server, as it was broadcast."""
    prepared: Any
    """The result of `prepare` for this iteration."""
    policy: Policy
    """pi."""
    actions: Distribution
    """pi(. | s) for each state."""
    previous_policy: Policy
    """pi_{i-1}, which collected the data."""
    global_policy: Policy
    """pi^t."""
    global_actions: Distribution
    """pi^t(. | s) for each state."""
    personal: Policy | None
    """The part of the policy that is the client's own, everything else None."""
    batch: PolicyBatch
    """The states, the actions there and their results; `weight` is 0 for padding."""
    statistics: Moments | None
    """The statistics that observations were standardised with."""
    broadcast_statistics: Moments | None
    """The same as they were at the start of the round, without anything of it."""
    seen: Moments | None
    """Moments of this iteration's observations alone."""
    iteration: Int[Array, ""]
    """Of the round, from 0."""
    step: Int[Array, ""]
    """Gradient steps of the round before this one."""
    key: PRNGKeyArray
    """For the algorithm's own use; another one in each step."""

    @property
    def own(self) -> Any:
        """Former name of `client_state`."""
        return self.client_state

    @property
    def shared(self) -> Any:
        """Former name of `server_state`."""
        return self.server_state


class Measured(NamedTuple):
    """Measurements of an iteration over its whole batch."""

    kl_local: Float[Array, ""]
    """Mean KL(pi_{i-1} || pi_i)."""
    distance_global: Float[Array, ""]
    """Mean distance between pi^t and pi_i, in the algorithm's distance."""
    max_advantage: Float[Array, ""]


def at_step(
    now: HookInput, policy: Policy, batch: PolicyBatch, step: Int[Array, ""] | int
) -> HookInput:
    """Return hooks' input for `policy` on the states of `batch`, at a gradient step of the round.

    Args:
        now: the same at the start of the iteration.
        policy: pi.
        batch: a minibatch, or the whole batch.
        step: gradient steps of the round before this one.
    """
    return now._replace(
        policy=policy,
        actions=policy(batch.observation),
        global_actions=now.global_policy.distribution(batch.broadcast),
        batch=batch,
        step=jnp.asarray(step),
        key=jax.random.fold_in(now.key, step),
    )


def objective(algorithm: Algorithm, at: HookInput) -> Float[Array, ""]:
    """h_n on a minibatch."""
    batch, learner = at.batch, at.learner
    ratio = jnp.exp(at.actions.log_prob(batch.action) - batch.log_prob)
    gain = weighted_mean(jnp.clip(ratio, *learner.ratio_bounds) * batch.advantage, batch.weight)
    if learner.entropy_bonus:
        gain += learner.entropy_bonus * weighted_mean(at.actions.entropy(), batch.weight)
    return gain - algorithm.penalty(at) - at.coefficients["c2"] * kl_local(at)


def kl_local(at: HookInput) -> Float[Array, ""]:
    """Mean KL(pi_{i-1} || pi) over the states of a batch."""
    previous = at.previous_policy.distribution(at.batch.previous)
    return weighted_mean(previous.kl(at.actions), at.batch.weight)


def optimiser(learner: LearnerSettings) -> optax.GradientTransformation:
    """The policy's optimiser, with gradient clipping if configured."""
    rule = {"sgd": optax.sgd, "adam": optax.adam}[learner.optimiser](learner.learning_rate)
    if learner.max_gradient_norm == float("inf"):
        return rule
    return optax.chain(optax.clip_by_global_norm(learner.max_gradient_norm), rule)


def gradient_steps(learner: LearnerSettings, batch: PolicyBatch) -> int:
    """Return the number of gradient steps in an iteration."""
    return minibatches.count(batch.weight.shape[0], learner.epochs, learner.minibatch)


def improve_policy(
    algorithm: Algorithm,
    now: HookInput,
    optimiser_state: PyTree,
    scale: Float[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Policy, PyTree]:
    """Take E epochs of minibatch gradient steps on h_n, from pi_{i-1} on (phase 1 of the paper).

    Args:
        algorithm: adds its penalty and may change the gradient.
        now: the start of the iteration, with its whole batch.
        optimiser_state: as the iteration before left it.
        scale: factor on the step size (below 1 after the guard acted).
        key: for the shuffling.

    Returns:
        pi_i and the optimiser's state.
    """
    learner = now.learner
    before = now.iteration * gradient_steps(learner, now.batch)

    def gradient(policy: Policy, part: PolicyBatch, step: Int[Array, ""]) -> Policy:
        return descent_direction(algorithm, now, policy, part, before + step)

    batches = minibatches.shuffled(now.batch, learner.epochs, learner.minibatch, key)
    return minibatches.descend(
        gradient, optimiser(learner), now.previous_policy, optimiser_state, batches, scale
    )


def descent_direction(
    algorithm: Algorithm,
    now: HookInput,
    policy: Policy,
    part: PolicyBatch,
    step: Int[Array, ""],
) -> Policy:
    """Return what the optimiser is given: the gradient of -h_n, as the algorithm changes it.

    Args:
        algorithm: adds its penalty and may change the gradient.
        now: the start of the iteration.
        policy: pi.
        part: a minibatch.
        step: gradient steps of the round before this one.
    """

    def h(policy: Policy) -> Float[Array, ""]:
        return objective(algorithm, at_step(now, policy, part, step))

    descent = jax.tree.map(jnp.negative, jax.grad(h)(policy))
    applied = algorithm.gradient(descent, at_step(now, policy, part, step))
    return applied if now.personal is None else _personal_first(now, applied)


def _personal_first(now: HookInput, gradient: Policy) -> Policy:
    """The gradient without what is shared, while only the personal part is trained.

    What sets this client apart then goes into its own part, and not into what is averaged away.
    """
    shared = trains_shared(now.learner, now.iteration)

    def held(own: Array | None, g: Array | None) -> Array | None:
        return g if own is not None or g is None else g * shared

    return jax.tree.map(held, now.personal, gradient, is_leaf=lambda x: x is None)


def trains_shared(learner: LearnerSettings, number: Int[Array, ""]) -> Float[Array, ""]:
    """1 if an iteration trains more than the personal part of the policy, else 0."""
    return (number >= learner.personal_iterations).astype(jnp.float32)


def measure(algorithm: Algorithm, at: HookInput) -> Measured:
    """The divergences of pi_i that phases 2 and 3 compare with their targets."""
    return Measured(
        kl_local(at),
        algorithm.distance_to_global(at),
        jnp.max(jnp.abs(at.batch.advantage)),
    )
