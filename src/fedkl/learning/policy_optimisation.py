"""The paper's local objective h_n and the gradient steps on it.

For one iteration of one client, with pi the policy being trained, pi_{i-1} the one that collected
the data and pi^t the global one (the paper's equation labelled finallocalobj):

    h_n = E[ pi(a|s) / pi_{i-1}(a|s) A(s, a) ] - penalty - c2 E[ KL(pi_{i-1} || pi) ]

where `penalty` is what the algorithm adds: c1 E[ sqrt(KL(pi^t || pi) / 2) ] for FedKL.
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
    """What the policy learns from: an iteration's steps, in no order."""

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


class Policies(NamedTuple):
    """The two fixed policies of an iteration."""

    previous: Policy
    """pi_{i-1}, which collected the data."""
    broadcast: Policy
    """pi^t."""


class Iteration(NamedTuple):
    """What stays as it is for a whole iteration."""

    learner: LearnerSettings
    policies: Policies
    coefficients: dict[str, Float[Array, ""]]
    """c2 and those of the algorithm."""
    own: Any
    """What the client keeps for the algorithm."""
    shared: Any
    """What the algorithm has the server broadcast."""
    statistics: Moments | None
    """What observations are standardised with."""
    number: Int[Array, ""]
    """i - 1."""
    key: PRNGKeyArray
    prepared: Any = ()
    """What the algorithm has made for this iteration."""
    personal: Policy | None = None
    """The part of the policy that is the client's own, everything else None."""


class Local(NamedTuple):
    """All that an algorithm's hooks may look at: the local policy pi beside the global one pi^t on
    a batch of states, and where in the round that is.

    What a hook does not look at costs nothing: it is not computed.
    """

    learner: LearnerSettings
    coefficients: dict[str, Float[Array, ""]]
    """c2 and those of the algorithm."""
    own: Any
    """What the client keeps for the algorithm."""
    shared: Any
    """What the algorithm has the server broadcast."""
    prepared: Any
    """What the algorithm has made for this iteration."""
    policy: Policy
    """pi."""
    actions: Distribution
    """pi(. | s) for each state."""
    global_policy: Policy
    """pi^t."""
    global_actions: Distribution
    """pi^t(. | s) for each state."""
    batch: PolicyBatch
    """The states, what was done there and what came of it; `weight` is 0 for padding."""
    statistics: Moments | None
    """What observations were standardised with."""
    iteration: Int[Array, ""]
    """Of the round, from 0."""
    step: Int[Array, ""]
    """Gradient steps of the round before this one."""
    key: PRNGKeyArray
    """For the algorithm's own use; another one in each step."""


class Measured(NamedTuple):
    """What an iteration measured over its whole batch."""

    kl_local: Float[Array, ""]
    """Mean KL(pi_{i-1} || pi_i)."""
    distance_global: Float[Array, ""]
    """Mean distance between pi^t and pi_i, in the algorithm's distance."""
    max_advantage: Float[Array, ""]


class Learning(NamedTuple):
    """A policy on its way through gradient steps."""

    policy: Policy
    optimiser: PyTree
    scale: Float[Array, ""]
    """Factor on the step size (below 1 after the guard acted)."""


def look(now: Iteration, policy: Policy, batch: PolicyBatch, step: Int[Array, ""] | int) -> Local:
    """What a hook sees of `policy` on the states of `batch`."""
    return Local(
        learner=now.learner,
        coefficients=now.coefficients,
        own=now.own,
        shared=now.shared,
        prepared=now.prepared,
        policy=policy,
        actions=policy(batch.observation),
        global_policy=now.policies.broadcast,
        global_actions=now.policies.broadcast.distribution(batch.broadcast),
        batch=batch,
        statistics=now.statistics,
        iteration=now.number,
        step=jnp.asarray(step),
        key=jax.random.fold_in(now.key, step),
    )


def objective(algorithm: Algorithm, now: Iteration, at: Local) -> Float[Array, ""]:
    """h_n on a minibatch."""
    batch, learner = at.batch, at.learner
    ratio = jnp.exp(at.actions.log_prob(batch.action) - batch.log_prob)
    gain = weighted_mean(jnp.clip(ratio, *learner.ratio_bounds) * batch.advantage, batch.weight)
    return gain - algorithm.penalty(at) - at.coefficients["c2"] * kl_local(now, at)


def kl_local(now: Iteration, at: Local) -> Float[Array, ""]:
    """Mean KL(pi_{i-1} || pi) over the states of a batch."""
    previous = now.policies.previous.distribution(at.batch.previous)
    return weighted_mean(previous.kl(at.actions), at.batch.weight)


def optimiser(learner: LearnerSettings) -> optax.GradientTransformation:
    """The policy's optimiser, with gradient clipping if configured."""
    rule = {"sgd": optax.sgd, "adam": optax.adam}[learner.optimiser](learner.learning_rate)
    if learner.max_gradient_norm == float("inf"):
        return rule
    return optax.chain(optax.clip_by_global_norm(learner.max_gradient_norm), rule)


def gradient_steps(learner: LearnerSettings, batch: PolicyBatch) -> int:
    """How many gradient steps an iteration takes."""
    return minibatches.count(batch.weight.shape[0], learner.epochs, learner.minibatch)


def improve_policy(
    algorithm: Algorithm,
    now: Iteration,
    start: Learning,
    batch: PolicyBatch,
    key: PRNGKeyArray,
) -> tuple[Policy, PyTree]:
    """E epochs of minibatch gradient steps on h_n, from pi_{i-1} on (phase 1 of the paper).

    Args:
        algorithm: adds its penalty and may change the gradient.
        now: the iteration.
        start: pi_{i-1}, with its optimiser.
        batch: the iteration's data.
        key: for the shuffling.

    Returns:
        pi_i and the optimiser's state.
    """
    learner = now.learner
    before = now.number * gradient_steps(learner, batch)

    def gradient(policy: Policy, part: PolicyBatch, step: Int[Array, ""]) -> Policy:
        def h(policy: Policy) -> Float[Array, ""]:
            return objective(algorithm, now, look(now, policy, part, before + step))

        descent = jax.tree.map(jnp.negative, jax.grad(h)(policy))
        applied = algorithm.gradient(descent, look(now, policy, part, before + step))
        return applied if now.personal is None else _own_first(now, applied)

    batches = minibatches.shuffled(batch, learner.epochs, learner.minibatch, key)
    return minibatches.descend(
        gradient, optimiser(learner), start.policy, start.optimiser, batches, start.scale
    )


def _own_first(now: Iteration, gradient: Policy) -> Policy:
    """Without what is shared, in the iterations in which only the personal part is trained.

    What sets this client apart then goes into its own part, and not into what is averaged away.
    """
    shared = trains_shared(now.learner, now.number)

    def held(own: Array | None, g: Array | None) -> Array | None:
        return g if own is not None or g is None else g * shared

    return jax.tree.map(held, now.personal, gradient, is_leaf=lambda x: x is None)


def trains_shared(learner: LearnerSettings, number: Int[Array, ""]) -> Float[Array, ""]:
    """1 if an iteration trains more than the personal part of the policy, else 0."""
    return (number >= learner.personal_iterations).astype(jnp.float32)


def measure(algorithm: Algorithm, now: Iteration, at: Local) -> Measured:
    """The divergences of pi_i that phases 2 and 3 compare with their targets."""
    return Measured(
        kl_local(now, at),
        algorithm.distance_to_global(at),
        jnp.max(jnp.abs(at.batch.advantage)),
    )
