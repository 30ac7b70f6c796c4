"""One client's round, for any learner: begin, I times collect and improve, finish.

`local_round` is the only local training there is: inside jit where episodes come from a traced
world, and a piece at a time where they come from the host. In a world that clients share, the
engine runs the episodes and calls the learner's pieces itself: `begin`, then in each iteration
`clean`, `improve` and `fit_critic`, then `finish`. `fedkl.clients.paper_learner` has the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from fedkl.clients.behaviour import Behaviour
from fedkl.clients.records import (
    OF_ITERATION,
    ClientState,
    Metrics,
    Model,
    Start,
    Task,
    Trained,
)
from fedkl.clients.sources import Source, Traced
from fedkl.io.arrays import Array
from fedkl.learning.policy import Policy, whole
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import Trajectories, columns_for


def local_round(task: Task, start: Start, source: Source) -> tuple[Trained, ClientState]:
    """Train the broadcast model on one client's world for a round.

    Returns:
        What comes of it, and the client's new state.
    """
    if not isinstance(source, Traced):
        return _on_host(task, start, source)
    learner = task.learner

    def step(carry: PyTree, index: Array) -> tuple[PyTree, Metrics]:
        data = collect(task, start, carry, source, index)
        cleaned = learner.clean(task, data)
        carry, batch, metrics = learner.improve(task, start, carry, data, cleaned, index)
        return learner.fit_critic(task, start, carry, batch, index), metrics

    end, metrics = jax.lax.scan(step, learner.begin(task, start), jnp.arange(learner.iterations))
    return finish(task, start, end, metrics)


def _on_host(task: Task, start: Start, source: Source) -> tuple[Trained, ClientState]:
    carry, rows = _begin(task, start), []
    for i in range(task.learner.iterations):
        data = collect(task, start, carry, source, i)
        cleaned = _clean(task, data)
        carry, batch, metrics = _improve(task, start, carry, data, cleaned, jnp.int32(i))
        carry = _fit_critic(task, start, carry, batch, jnp.int32(i))
        rows.append(metrics)
    return _finish(task, start, carry, jax.tree.map(lambda *x: jnp.stack(x), *rows))


def finish(task: Task, start: Start, end: PyTree, metrics: Metrics) -> tuple[Trained, ClientState]:
    """Make what a client sends, by way of its chain of links, and what it keeps."""
    trained, after = task.learner.finish(task, start, end, metrics)
    return trained._replace(update=task.upload(trained.update, start)), after


def learner_part(name: str) -> Callable[..., Any]:
    """A method of the task's learner as a function of the task, to be compiled by itself."""

    def part(task: Task, *arguments: Any) -> Any:
        return getattr(task.learner, name)(task, *arguments)

    part.__name__ = name
    return part


_begin, _clean, _improve, _fit_critic = (
    jax.jit(learner_part(name)) for name in ("begin", "clean", "improve", "fit_critic")
)
_finish = jax.jit(finish)


def collect(
    task: Task, start: Start, carry: PyTree, source: Source, index: Array | int
) -> Trajectories:
    """Run pi_{i-1} for T steps: an iteration's data (phase 0)."""
    run_key, _, _ = iteration_keys(start.key, index)
    acts = task.learner.behaviour(task, start, carry)
    steps = task.learner.steps
    if task.learner.collect == "steps":
        return source.fill(acts, steps, run_key)
    return source.collect(acts, columns_for(task.world, steps), run_key)


def message_after(task: Task, start: Start) -> PyTree:
    """The message after a round in which nothing happened: its shape is that of every message."""
    none = jnp.zeros(task.learner.iterations)
    metrics = dict.fromkeys((*OF_ITERATION, *task.learner.all_logged()), none)
    metrics |= {"guarded": none == 0}
    trained, _ = finish(task, start, task.learner.begin(task, start), metrics)
    return trained.update.message


def iteration_keys(
    key: PRNGKeyArray, index: Array | int
) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """An iteration's keys, for acting, for the policy and for the critic, from the round's key."""
    run, policy, critic = jax.random.split(jax.random.fold_in(key, index), 3)
    return run, policy, critic


def policy_of(model: Model, client: ClientState) -> Policy:
    """pi^t as a client has it: what the server sent, with the client's personal part."""
    return whole(model.policy, client.personal)


def global_behaviour(
    task: Task, model: Model, client: ClientState, deterministic: bool = False
) -> Behaviour:
    """A client's behaviour where it follows the global policy."""
    seen = observation_stats(model, client)
    policy = policy_of(model, client)
    return Behaviour(task.learner, policy, seen, client.iterations, deterministic)


def observation_stats(model: Model, client: ClientState) -> Moments | None:
    """The statistics that a client's observations are standardised with: the server's, or its own.

    A client that keeps statistics of its own goes by them.
    """
    return model.observations if client.observations is None else client.observations
