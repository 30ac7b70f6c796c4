"""The paper's local objective h_n and the gradient steps on it.

For one iteration of one client, with pi the policy being trained, pi_{i-1} the one that collected
the data and pi^t the global one (the paper's equation labelled finallocalobj):

    h_n = E[ pi(a|s) / pi_{i-1}(a|s) A(s, a) ] - penalty - c2 E[ KL(pi_{i-1} || pi) ]

where `penalty` is what the algorithm adds: c1 E[ sqrt(KL(pi^t || pi) / 2) ] for FedKL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from fedkl.learning import minibatches
from fedkl.learning.distributions import Distribution
from fedkl.learning.minibatches import weighted_mean
from fedkl.learning.policy import Policy
from fedkl.learning.settings import LearnerSettings

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


class View(NamedTuple):
    """The local policy pi beside the global one pi^t, on a batch of states."""

    policy: Policy
    actions: Distribution
    """pi(. | s) for each state."""
    global_policy: Policy
    global_actions: Distribution
    """pi^t(. | s) for each state."""
    weight: Float[Array, " m"]
    """1 for a real state, 0 for padding."""


class Measured(NamedTuple):
    """What an iteration measured over its whole batch."""

    kl_local: Float[Array, ""]
    """Mean KL(pi_{i-1} || pi_i)."""
    d_global: Float[Array, ""]
    """Mean distance between pi^t and pi_i, in the algorithm's distance."""
    max_advantage: Float[Array, ""]


class Policies(NamedTuple):
    """The two fixed policies of an iteration."""

    previous: Policy
    """pi_{i-1}, which collected the data."""
    broadcast: Policy
    """pi^t."""


def view(policy: Policy, policies: Policies, batch: PolicyBatch) -> View:
    """`policy` beside the global one on the states of `batch`."""
    return View(
        policy,
        policy(batch.observation),
        policies.broadcast,
        policies.broadcast.distribution(batch.broadcast),
        batch.weight,
    )


def objective(
    policy: Policy,
    policies: Policies,
    batch: PolicyBatch,
    algorithm: Algorithm,
    coefficients: dict[str, PyTree],
    ratio_bounds: tuple[float, float],
) -> Float[Array, ""]:
    """h_n on a minibatch."""
    now = view(policy, policies, batch)
    ratio = jnp.exp(now.actions.log_prob(batch.action) - batch.log_prob)
    gain = weighted_mean(jnp.clip(ratio, *ratio_bounds) * batch.advantage, batch.weight)
    return (
        gain
        - algorithm.penalty(coefficients, now)
        - coefficients["c2"] * kl_local(now, policies, batch)
    )


def kl_local(now: View, policies: Policies, batch: PolicyBatch) -> Float[Array, ""]:
    """Mean KL(pi_{i-1} || pi) over the states of `batch`."""
    previous = policies.previous.distribution(batch.previous)
    return weighted_mean(previous.kl(now.actions), batch.weight)


def optimiser(learner: LearnerSettings) -> optax.GradientTransformation:
    """The policy's optimiser, with gradient clipping if configured."""
    rule = {"sgd": optax.sgd, "adam": optax.adam}[learner.optimiser](learner.learning_rate)
    if learner.max_gradient_norm == float("inf"):
        return rule
    return optax.chain(optax.clip_by_global_norm(learner.max_gradient_norm), rule)


def improve_policy(
    algorithm: Algorithm,
    learner: LearnerSettings,
    policies: Policies,
    optimiser_state: PyTree,
    batch: PolicyBatch,
    coefficients: dict[str, PyTree],
    scale: Float[Array, ""],
    iteration: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Policy, PyTree]:
    """E epochs of minibatch gradient steps on h_n, from pi_{i-1} on (phase 1 of the paper).

    Args:
        algorithm: adds its penalty and may change the gradient.
        learner: epochs, minibatch, optimiser.
        policies: pi_{i-1} and pi^t.
        optimiser_state: the policy optimiser's state.
        batch: the iteration's data.
        coefficients: c2 and the algorithm's.
        scale: factor on the step size (below 1 after the guard acted).
        iteration: i - 1, to number the gradient steps of the round.
        key: for the shuffling.

    Returns:
        pi_i and the optimiser's state.
    """
    steps = minibatches.count(batch.weight.shape[0], learner.epochs, learner.minibatch)

    def gradient(policy: Policy, part: PolicyBatch, step: Int[Array, ""]) -> Policy:
        ascent = jax.grad(objective)(
            policy, policies, part, algorithm, coefficients, learner.ratio_bounds
        )
        descent = jax.tree.map(jnp.negative, ascent)
        return algorithm.gradient(descent, iteration * steps + step)

    batches = minibatches.shuffled(batch, learner.epochs, learner.minibatch, key)
    return minibatches.descend(
        gradient, optimiser(learner), policies.previous, optimiser_state, batches, scale
    )


def measure(
    algorithm: Algorithm, policy: Policy, policies: Policies, batch: PolicyBatch
) -> Measured:
    """The divergences of pi_i that phases 2 and 3 compare with their targets."""
    now = view(policy, policies, batch)
    return Measured(
        kl_local(now, policies, batch),
        algorithm.distance_to_global(now),
        jnp.max(jnp.abs(batch.advantage)),
    )
