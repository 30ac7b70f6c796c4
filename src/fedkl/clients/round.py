"""One client's round: I times collect, optimise h_n, adapt the coefficients (Algorithm 2).

`local_round` is the only local training there is: inside jit where episodes come from a traced
world, and a piece at a time where they come from the host. In a world that clients share, the
engine runs the episodes and calls the pieces itself: `begin`, then in each iteration `clean`,
`improve` and `fit_critic`, then `finish`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from fedkl.algorithms.base import Ended
from fedkl.arrays import Array
from fedkl.clients.acting import Behaviour
from fedkl.clients.guard import Guarded, guard
from fedkl.clients.sources import Source, Traced
from fedkl.clients.state import (
    ClientState,
    CriticState,
    Metrics,
    Model,
    Task,
    Update,
    first_coefficients,
)
from fedkl.learning import critic, statistics
from fedkl.learning.adaptation import Bounds, capped, towards_target
from fedkl.learning.batches import batches
from fedkl.learning.networks import MLP
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import (
    Iteration,
    Learning,
    Local,
    Measured,
    Policies,
    gradient_steps,
    improve_policy,
    look,
    measure,
    optimiser,
)
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import Trajectories, episodes_for


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


def local_round(task: Task, start: Start, source: Source) -> tuple[Trained, ClientState]:
    """Trains the broadcast model on one client's world for a round.

    Returns:
        What comes of it, and the client's new state.
    """
    episodes = episodes_for(task.world, task.learner.steps)
    if not isinstance(source, Traced):
        return _on_the_host(task, start, source, episodes)

    def step(carry: Carry, index: Array) -> tuple[Carry, Metrics]:
        run = keys_of(start.key, index).run
        data = source.collect(behaviour(task, start, carry), episodes, run)
        carry, batch, metrics = improve(task, start, carry, data, clean(task, data), index)
        return fit_critic(task, start, carry, batch, index), metrics

    indices = jnp.arange(task.learner.iterations)
    end, metrics = jax.lax.scan(step, begin(task, start), indices)
    return finish(task, start, end, metrics)


def _on_the_host(
    task: Task, start: Start, source: Source, episodes: int
) -> tuple[Trained, ClientState]:
    carry, rows = _begin(task, start), []
    for i in range(task.learner.iterations):
        run = keys_of(start.key, i).run
        data = source.collect(behaviour(task, start, carry), episodes, run)
        cleaned = _clean(task, data)
        carry, batch, metrics = _improve(task, start, carry, data, cleaned, jnp.int32(i))
        carry = _fit_critic(task, start, carry, batch, jnp.int32(i))
        rows.append(metrics)
    return _finish(task, start, carry, jax.tree.map(lambda *x: jnp.stack(x), *rows))


def keys_of(key: PRNGKeyArray, index: Array | int) -> Keys:
    """The keys of an iteration of the round whose key is given."""
    run, policy, critic = jax.random.split(jax.random.fold_in(key, index), 3)
    return Keys(run, policy, critic)


def seen_with(model: Model, client: ClientState) -> Moments | None:
    """The statistics that a client's observations are standardised with: the server's, or its own.

    A client that keeps statistics of its own goes by them.
    """
    return model.observations if client.observations is None else client.observations


def behaviour(task: Task, start: Start, carry: Carry) -> Behaviour:
    """How a client acts in an iteration."""
    return Behaviour(task.learner, carry.policy, _seen(start, carry), carry.iterations)


def following(
    task: Task, model: Model, client: ClientState, deterministic: bool = False
) -> Behaviour:
    """How a client acts that follows the global policy."""
    seen = seen_with(model, client)
    return Behaviour(task.learner, model.policy, seen, client.iterations, deterministic)


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
    return Carry(
        policy=model.policy,
        policy_optimiser=optimiser(task.learner).init(model.policy),
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
        rewards=_none_yet(_known_rewards(start)),
        replay=_no_replay(task) if task.critic.replay_previous else None,
    )


def finish(task: Task, start: Start, end: Carry, metrics: Metrics) -> tuple[Trained, ClientState]:
    """What a client sends and keeps after its last iteration.

    Args:
        task: world, algorithm and settings.
        start: what it started the round from.
        end: what the last iteration left.
        metrics: of all iterations.
    """
    model, client, _ = start
    travelled = task.learner.learning_rate * end.travelled
    own, message = task.algorithm.finish(
        Ended(client.own, model.shared, end.policy, model.policy, travelled)
    )
    update = Update(
        model=Model(
            policy=end.policy,
            critic=end.critic if client.critic is None else None,
            observations=end.observations if client.observations is None else None,
            rewards=end.rewards if client.rewards is None else None,
            coefficients={n: end.coefficients[n] for n in model.coefficients},
            shared=(),
        ),
        weight=jnp.sum(metrics["steps"]),
        message=message,
    )
    after = ClientState(
        coefficients=end.coefficients,
        step_scale=end.step_scale,
        iterations=end.iterations,
        critic=None if client.critic is None else CriticState(end.critic, end.critic_optimiser),
        observations=_sum(client.observations, end.observations),
        rewards=_sum(client.rewards, end.rewards),
        own=own,
    )
    last = {"coefficients": end.coefficients, "step_scale": end.step_scale}
    return Trained(update, metrics | last), after


def clean(task: Task, data: Trajectories) -> Cleaned:
    """An iteration's data for the running statistics.

    A step of its own, because on the host it is compiled by itself: together with `improve` it
    would change how that rounds.
    """
    limit = task.learner.outliers_beyond
    return Cleaned(
        statistics.without_outliers(data.observation, data.mask, limit),
        statistics.without_outliers(data.reward, data.mask, limit),
    )


def improve(
    task: Task,
    start: Start,
    carry: Carry,
    data: Trajectories,
    cleaned: Cleaned,
    index: Int[Array, ""],
) -> tuple[Carry, critic.CriticBatch, Metrics]:
    """One iteration of the policy, on the episodes that pi_{i-1} has run for T steps (phase 0).

    The statistics it acted on stay as they are for the whole iteration, so the importance ratio
    compares like with like.

    Args:
        task: world, algorithm and settings.
        start: what the client started the round from.
        carry: what the iteration before left.
        data: the episodes.
        cleaned: the same for the running statistics.
        index: i - 1.

    Returns:
        What the next iteration starts with, but for the critic; what the critic is to learn from;
        and metrics.
    """
    learner, algorithm = task.learner, task.algorithm
    key = keys_of(start.key, index).policy
    policies = Policies(carry.policy, start.model.policy)
    seen = _seen(start, carry)
    observations = _add(carry.observations, cleaned.observation, data.mask)
    rewards = _add(carry.rewards, cleaned.reward, data.mask)
    known = _sum(_known_rewards(start), rewards)
    reward = statistics.rescale(known, data.reward, learner.reward_clip)
    policy_batch, critic_batch = batches(task, policies, carry.critic, seen, data, reward)
    now = Iteration(
        policies, carry.coefficients, start.client.own, start.model.shared, seen, index, key
    )

    # Phase 1: E epochs on h_n.
    learning = Learning(carry.policy, carry.policy_optimiser, carry.step_scale)
    policy, policy_optimiser = improve_policy(algorithm, learner, now, learning, policy_batch, key)

    # Phases 2 and 3: measure on the whole batch, then adapt c2 and c1.
    steps = gradient_steps(learner, policy_batch)
    at = look(now, policy, policy_batch, (index + 1) * steps)
    measured = measure(algorithm, now, at)
    adapted = _adapt(task, at, measured)

    before = Guarded(carry.policy, carry.policy_optimiser, carry.coefficients, carry.step_scale)
    after = Guarded(policy, policy_optimiser, adapted, carry.step_scale)
    counts, guarded = guard(learner, before, after, measured.kl_local)
    metrics = {
        "kl_local": measured.kl_local,
        "distance_global": measured.distance_global,
        "guarded": guarded,
        "steps": jnp.sum(policy_batch.weight),
        "train_return": jnp.mean(data.returns()),
    }
    carried = carry._replace(
        **counts._asdict(),
        iterations=carry.iterations + 1,
        travelled=carry.travelled + jnp.where(guarded, 0.0, steps * carry.step_scale),
        observations=observations,
        rewards=rewards,
        replay=None if carry.replay is None else critic_batch,
    )
    return carried, _with_replay(carry.replay, critic_batch), metrics


def fit_critic(
    task: Task, start: Start, carry: Carry, batch: critic.CriticBatch, index: Int[Array, ""]
) -> Carry:
    """The critic's part of an iteration; the next one needs it only after its episodes."""
    key = keys_of(start.key, index).critic
    value_net, critic_optimiser = critic.improve_critic(
        task.critic, carry.critic, carry.critic_optimiser, batch, key
    )
    return carry._replace(critic=value_net, critic_optimiser=critic_optimiser)


_begin, _clean, _improve = jax.jit(begin), jax.jit(clean), jax.jit(improve)
_fit_critic, _finish = jax.jit(fit_critic), jax.jit(finish)


def _adapt(task: Task, at: Local, measured: Measured) -> dict[str, Float[Array, ""]]:
    bounds: Bounds = task.learner.c2_bounds
    if task.learner.c2_cap_by_advantage:
        bounds = capped(bounds, measured.max_advantage, measured.kl_local)
    c2 = towards_target(at.coefficients["c2"], measured.kl_local, task.learner.d_local, bounds)
    return task.algorithm.adapt(at._replace(coefficients=at.coefficients | {"c2": c2}), measured)


def _seen(start: Start, carry: Carry) -> Moments | None:
    return _sum(seen_with(start.model, start.client), carry.observations)


def _known_rewards(start: Start) -> Moments | None:
    own = start.client.rewards
    return start.model.rewards if own is None else own


def _none_yet(moments: Moments | None) -> Moments | None:
    """Empty moments to collect into, if such moments are kept."""
    return None if moments is None else jax.tree.map(lambda x: jnp.zeros(x.shape), moments)


def _add(moments: Moments | None, x: Array, mask: Array) -> Moments | None:
    return None if moments is None else statistics.merge(moments, statistics.of_batch(x, mask))


def _sum(a: Moments | None, b: Moments | None) -> Moments | None:
    return None if a is None or b is None else statistics.merge(a, b)


def _no_replay(task: Task) -> critic.CriticBatch:
    """A batch of padding, as large as an iteration's."""
    samples = episodes_for(task.world, task.learner.steps) * task.world.horizon
    return critic.CriticBatch(
        jnp.zeros((samples, critic.inputs(task.world, task.critic))),
        jnp.zeros(samples),
        jnp.zeros(samples),
    )


def _with_replay(
    previous: critic.CriticBatch | None, batch: critic.CriticBatch
) -> critic.CriticBatch:
    if previous is None:
        return batch
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), previous, batch)
