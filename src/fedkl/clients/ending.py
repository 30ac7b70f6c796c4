"""The end of a client's round: what it sends, and what it keeps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from fedkl.algorithms.base import Ended
from fedkl.clients.carry import Carry, Start, Trained, begin, merged, policy_of, seen_in
from fedkl.clients.state import ClientState, CriticState, Metrics, Model, Task, Update
from fedkl.learning.personal import only, without


def finish(task: Task, start: Start, end: Carry, metrics: Metrics) -> tuple[Trained, ClientState]:
    """What a client sends and keeps after its last iteration.

    Args:
        task: world, algorithm and settings.
        start: what it started the round from.
        end: what the last iteration left.
        metrics: of all iterations.
    """
    model, client, _ = start
    ended = _ended(task, start, end, metrics)
    settled = task.algorithm.adapt_after_round(ended)
    moved = ended.travelled > 0
    coefficients = {
        name: jnp.where(moved, settled[name], before) for name, before in end.coefficients.items()
    }
    own, message = task.algorithm.finish(ended)
    update = Update(
        model=Model(
            policy=without(end.policy, client.personal),
            critic=end.critic if client.critic is None else None,
            observations=end.observations if client.observations is None else None,
            rewards=end.rewards if client.rewards is None else None,
            coefficients={n: coefficients[n] for n in model.coefficients},
            shared=(),
        ),
        weight=jnp.sum(metrics["steps"]),
        message=message,
    )
    after = ClientState(
        coefficients=coefficients,
        step_scale=end.step_scale,
        iterations=end.iterations,
        critic=None if client.critic is None else CriticState(end.critic, end.critic_optimiser),
        observations=merged(client.observations, end.observations),
        rewards=merged(client.rewards, end.rewards),
        personal=only(end.policy, client.personal),
        own=own,
    )
    last = {"coefficients": coefficients, "step_scale": end.step_scale}
    return Trained(update, metrics | last), after


def message_after(task: Task, start: Start) -> PyTree:
    """What the algorithm sends after a round in which nothing happened: the shape of a message."""
    none = jnp.zeros(task.learner.iterations)
    metrics = {"guarded": none == 0, "distance_global": none, "steps": none}
    trained, _ = finish(task, start, begin(task, start), metrics)
    return trained.update.message


def _ended(task: Task, start: Start, end: Carry, metrics: Metrics) -> Ended:
    """What an algorithm sees of a round that is over."""
    model, client, key = start
    counts = ~metrics["guarded"]
    # The last iteration that counts; whatever is there if none does, as `travelled` says.
    last = task.learner.iterations - 1 - jnp.argmax(counts[::-1])
    begun = policy_of(model, client)
    sent = (without(policy, client.personal) for policy in (end.policy, begun))
    return Ended(
        learner=task.learner,
        coefficients=end.coefficients,
        own=client.own,
        shared=model.shared,
        policy=end.policy,
        global_policy=begun,
        move=jax.tree.map(jnp.subtract, *sent),
        travelled=task.learner.learning_rate * end.travelled,
        distance_global=metrics["distance_global"][last],
        sample=end.sample,
        statistics=seen_in(task, start, end),
        # No iteration has this number.
        key=jax.random.fold_in(key, task.learner.iterations),
    )
