"""One client's round: I times collect, optimise h_n, adapt the coefficients (Algorithm 2).

`local_round` is the only local training there is: inside jit where episodes come from a traced
world, and a piece at a time where they come from the host. In a world that clients share, the
engine runs the episodes and calls the pieces itself: `begin`, then in each iteration `clean`,
`improve` and `fit_critic`, then `finish`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from fedkl.arrays import Array
from fedkl.clients.carry import (
    Carry,
    Cleaned,
    Start,
    Trained,
    begin,
    behaviour,
    keys_of,
    known_rewards,
    merged,
    policy_of,
    seen_in,
)
from fedkl.clients.ending import finish
from fedkl.clients.guard import Guarded, guard
from fedkl.clients.sources import Source, Traced
from fedkl.clients.state import ClientState, Metrics, Task
from fedkl.learning import critic, statistics
from fedkl.learning.adaptation import Bounds, capped, towards_target
from fedkl.learning.batches import batches
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
    trains_shared,
)
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import Trajectories, columns_for

NOT_A_STEP = 2**31
"""Hooks' keys are folded with the number of a gradient step, which this is not."""


def local_round(task: Task, start: Start, source: Source) -> tuple[Trained, ClientState]:
    """Trains the broadcast model on one client's world for a round.

    Returns:
        What comes of it, and the client's new state.
    """
    if not isinstance(source, Traced):
        return _on_the_host(task, start, source)

    def step(carry: Carry, index: Array) -> tuple[Carry, Metrics]:
        data = collect(task, start, carry, source, index)
        carry, batch, metrics = improve(task, start, carry, data, clean(task, data), index)
        return fit_critic(task, start, carry, batch, index), metrics

    indices = jnp.arange(task.learner.iterations)
    end, metrics = jax.lax.scan(step, begin(task, start), indices)
    return finish(task, start, end, metrics)


def _on_the_host(task: Task, start: Start, source: Source) -> tuple[Trained, ClientState]:
    carry, rows = _begin(task, start), []
    for i in range(task.learner.iterations):
        data = collect(task, start, carry, source, i)
        cleaned = _clean(task, data)
        carry, batch, metrics = _improve(task, start, carry, data, cleaned, jnp.int32(i))
        carry = _fit_critic(task, start, carry, batch, jnp.int32(i))
        rows.append(metrics)
    return _finish(task, start, carry, jax.tree.map(lambda *x: jnp.stack(x), *rows))


def collect(
    task: Task, start: Start, carry: Carry, source: Source, index: Array | int
) -> Trajectories:
    """An iteration's data: pi_{i-1} runs for T steps (phase 0)."""
    acts, key = behaviour(task, start, carry), keys_of(start.key, index).run
    steps = task.learner.steps
    if task.learner.collect == "steps":
        return source.fill(acts, steps, key)
    return source.collect(acts, columns_for(task.world, steps), key)


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
    """One iteration of the policy, on what `collect` gave.

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
    policies = Policies(carry.policy, policy_of(start.model, start.client))
    seen = seen_in(task, start, carry)
    observations = _add(carry.observations, cleaned.observation, data.mask)
    rewards = _add(carry.rewards, cleaned.reward, data.mask)
    known = merged(known_rewards(start), rewards)
    reward = statistics.rescale(known, data.reward, learner.reward_clip)
    policy_batch, critic_batch = batches(task, policies, carry.critic, seen, data, reward)
    now = Iteration(
        learner=learner,
        policies=policies,
        coefficients=carry.coefficients,
        own=start.client.own,
        shared=start.model.shared,
        statistics=seen,
        number=index,
        key=key,
        personal=start.client.personal,
    )
    for_algorithm, for_sample = jax.random.split(jax.random.fold_in(key, NOT_A_STEP))
    now = now._replace(prepared=algorithm.prepare(now, for_algorithm))

    # Phase 1: E epochs on h_n.
    learning = Learning(carry.policy, carry.policy_optimiser, carry.step_scale)
    policy, policy_optimiser = improve_policy(algorithm, now, learning, policy_batch, key)

    # Phases 2 and 3: measure on the whole batch, then adapt c2 and c1.
    steps = gradient_steps(learner, policy_batch)
    at = look(now, policy, policy_batch, (index + 1) * steps)
    measured = measure(algorithm, now, at)
    adapted = _adapt(task, at, measured)

    before = Guarded(carry.policy, carry.policy_optimiser, carry.coefficients, carry.step_scale)
    after = Guarded(policy, policy_optimiser, adapted, carry.step_scale)
    counts, guarded = guard(learner, before, after, measured.kl_local)
    went = steps * carry.step_scale
    if start.client.personal is not None:
        went = went * trains_shared(learner, index)
    metrics = {
        "kl_local": measured.kl_local,
        "distance_global": measured.distance_global,
        "guarded": guarded,
        "steps": jnp.sum(critic_batch.weight),
        "train_return": data.mean_return(),
    }
    carried = carry._replace(
        **counts._asdict(),
        iterations=carry.iterations + 1,
        travelled=carry.travelled + jnp.where(guarded, 0.0, went),
        observations=observations,
        rewards=rewards,
        replay=None if carry.replay is None else critic_batch,
        sample=_sample(task, cleaned.observation, data.mask, for_sample),
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


def _add(moments: Moments | None, x: Array, mask: Array) -> Moments | None:
    if moments is None:
        return None
    new = statistics.of_batch(x, mask, products=moments.products is not None)
    return statistics.merge(moments, new)


def _sample(
    task: Task, observation: Float[Array, "h n o"], mask: Bool[Array, "h n"], key: PRNGKeyArray
) -> Float[Array, "s o"] | None:
    """Some of an iteration's observations, for whoever asks for them."""
    number = task.algorithm.observations_sent
    if not number:
        return None
    # The largest of random numbers, padding last: different ones as far as there are so many.
    lots = jnp.where(mask, jax.random.uniform(key, mask.shape), -1.0).reshape(-1)
    first = jnp.argsort(-lots)[jnp.arange(number) % jnp.maximum(jnp.sum(mask), 1)]
    return observation.reshape(-1, observation.shape[-1])[first]


def _with_replay(
    previous: critic.CriticBatch | None, batch: critic.CriticBatch
) -> critic.CriticBatch:
    if previous is None:
        return batch
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), previous, batch)
