"""What a client's round starts from, and what one iteration hands to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree

from fedkl.algorithms.base import Ended
from fedkl.clients.behaviour import Behaviour
from fedkl.clients.records import (
    ClientState,
    CriticState,
    Metrics,
    Model,
    Task,
    Update,
    first_coefficients,
)
from fedkl.clients.sources import Source, Traced
from fedkl.io.arrays import Array
from fedkl.learning import critic, statistics
from fedkl.learning.advantage import batches
from fedkl.learning.penalty import Bounds, capped, towards_target
from fedkl.learning.policy import MLP, Policy, only, whole, without
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
    trains_shared,
)
from fedkl.learning.settings import LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import Trajectories, columns_for, samples_in


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


class Guarded(NamedTuple):
    """What an iteration may change and the guard may take back."""

    policy: Policy
    policy_optimiser: PyTree
    coefficients: dict[str, Float[Array, ""]]
    step_scale: Float[Array, ""]


def guard(
    learner: LearnerSettings, before: Guarded, after: Guarded, kl_local: Float[Array, ""]
) -> tuple[Guarded, Bool[Array, ""]]:
    """What counts of an iteration, and whether it was rolled back.

    Outside the trust region the step counts for nothing, neither for the policy nor for the
    coefficients, and the step size is halved; inside, it recovers.
    """
    bound = learner.guard_multiple * learner.d_local
    guarded = learner.guard & ~(_finite(after.policy) & (kl_local <= bound))
    back = before._replace(step_scale=before.step_scale * 0.5)
    on = after._replace(step_scale=jnp.minimum(before.step_scale * 1.1, 1.0))
    return jax.tree.map(lambda b, o: jnp.where(guarded, b, o), back, on), guarded


def _finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


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
