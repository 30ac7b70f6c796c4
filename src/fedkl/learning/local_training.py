"""One client's round: I times collect, optimise h_n, adapt the coefficients (Algorithm 2).

`local_round` is the only local training there is. In simulation it is vmapped over the selected
clients and jitted; a network client runs it singly. In a world that runs on the host the engine
collects, and calls what `local_round` is made of: `begin`, then in each iteration `improve` and
`fit_critic`, then `finish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from fedkl.learning import critic, statistics
from fedkl.learning.adaptation import Bounds, capped, towards_target
from fedkl.learning.batches import batches
from fedkl.learning.networks import MLP
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import (
    Measured,
    Policies,
    improve_policy,
    measure,
    optimiser,
)
from fedkl.learning.rollout import Act, Trajectories, episodes_for, rollout
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.learning.state import ClientState, CriticState, Metrics, Model, Update
from fedkl.learning.statistics import Moments
from fedkl.worlds.base import AnyWorld, World

if TYPE_CHECKING:
    from fedkl.algorithms.base import Algorithm


class Task(eqx.Module):
    """All that is the same for every client and round: the world, the algorithm, the settings."""

    world: AnyWorld
    algorithm: Algorithm
    learner: LearnerSettings
    critic: CriticSettings


class Carry(NamedTuple):
    """What one iteration hands to the next."""

    policy: Policy
    policy_optimiser: PyTree
    critic: MLP
    critic_optimiser: PyTree
    coefficients: dict[str, PyTree]
    step_scale: Float[Array, ""]
    iterations: Int[Array, ""]
    observations: Moments | None
    """New observations of this round only."""
    rewards: Moments | None
    replay: critic.CriticBatch | None
    """The previous iteration's critic batch, when it is replayed."""


def first_coefficients(task: Task) -> dict[str, PyTree]:
    """c2 and the algorithm's coefficients as they start."""
    start = {"c2": task.learner.c2} | task.algorithm.coefficients()
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start)


def across_rounds(task: Task) -> dict[str, str]:
    """What becomes of each coefficient between rounds."""
    rules = {"c2": task.learner.c2_across_rounds} | task.algorithm.across_rounds()
    return {name: rules.get(name, "kept") for name in first_coefficients(task)}


def behaviour(
    task: Task,
    policy: Policy,
    observations: Moments | None,
    iterations: Int[Array, ""],
    deterministic: bool = False,
) -> Act:
    """How a client acts: its policy on standardised observations."""
    explore = task.learner.uniform_exploration

    def act(observation: Float[Array, "n o"], key: PRNGKeyArray) -> Array:
        seen = statistics.standardise(observations, observation, task.learner.observation_clip)
        actions = policy(seen)
        if deterministic:
            return actions.mode()
        action = actions.sample(key)
        if explore == 0.0 or action.ndim == 1:
            return action
        # The authors' code does this until a client has finished its first local iteration.
        which, what = jax.random.split(jax.random.fold_in(key, 1))
        uniform = jax.random.bernoulli(which, explore, action.shape[:1]) & (iterations == 0)
        return jnp.where(uniform[:, None], jax.random.uniform(what, action.shape), action)

    return act


class Base(NamedTuple):
    """The statistics that a client starts a round with."""

    observations: Moments | None
    rewards: Moments | None


class Keys(NamedTuple):
    """The randomness of an iteration."""

    run: PRNGKeyArray
    policy: PRNGKeyArray
    critic: PRNGKeyArray


def local_round(
    task: Task, model: Model, client: ClientState, params: PyTree, key: PRNGKeyArray
) -> tuple[Update, ClientState, Metrics]:
    """Trains the broadcast model on one client's world for a round.

    Args:
        task: world, algorithm and settings.
        model: the broadcast global model (pi^t).
        client: this client's own state.
        params: this client's row of the world's params.
        key: folded from seed, round and client; the iteration is folded in here.

    Returns:
        The update for the server, the client's new state, and per-iteration metrics
        (`kl_local`, `kl_global`, `guarded`) with the last coefficients.
    """
    assert isinstance(task.world, World)
    world = task.world
    base = base_of(model, client)
    episodes = episodes_for(world, task.learner.steps)

    def step(carry: Carry, index: Array) -> tuple[Carry, Metrics]:
        keys = keys_of(key, index)
        act = behaviour(task, carry.policy, seen_with(base, carry), carry.iterations)
        data = rollout(world, params, act, episodes, keys.run)
        carry, batch, metrics = improve(task, model.policy, base, carry, data, index, keys.policy)
        return fit_critic(task, carry, batch, keys.critic), metrics

    start = begin(task, model, client)
    end, metrics = jax.lax.scan(step, start, jnp.arange(task.learner.iterations))
    return *finish(model, client, end, metrics), metrics | last_metrics(end)


def keys_of(key: PRNGKeyArray, index: Array | int) -> Keys:
    """The keys of an iteration of the round whose key is given."""
    run, policy, critic = jax.random.split(jax.random.fold_in(key, index), 3)
    return Keys(run, policy, critic)


def base_of(model: Model, client: ClientState) -> Base:
    """The statistics that this client goes by: the server's, or its own."""
    return Base(
        model.observations if client.observations is None else client.observations,
        model.rewards if client.rewards is None else client.rewards,
    )


def seen_with(base: Base, carry: Carry) -> Moments | None:
    """The statistics that observations are standardised with now."""
    return _sum(base.observations, carry.observations)


def begin(task: Task, model: Model, client: ClientState) -> Carry:
    """What a client starts its round with."""
    rules = across_rounds(task)
    fresh = first_coefficients(task)
    coefficients = {
        name: {"kept": client.coefficients, "averaged": model.coefficients, "reset": fresh}[rule][
            name
        ]
        for name, rule in rules.items()
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
        coefficients=coefficients,
        step_scale=client.step_scale,
        iterations=client.iterations,
        observations=_shape_of(model.observations, client.observations),
        rewards=_shape_of(model.rewards, client.rewards),
        replay=_no_replay(task) if task.critic.replay_previous else None,
    )


def finish(
    model: Model, client: ClientState, end: Carry, metrics: Metrics
) -> tuple[Update, ClientState]:
    """What a client sends and keeps after its last iteration.

    Args:
        model: what was broadcast to it.
        client: its state before the round.
        end: what the last iteration left.
        metrics: of all iterations.
    """
    update = Update(
        model=Model(
            policy=end.policy,
            critic=end.critic if client.critic is None else None,
            observations=end.observations if client.observations is None else None,
            rewards=end.rewards if client.rewards is None else None,
            coefficients={n: end.coefficients[n] for n in model.coefficients},
        ),
        weight=jnp.sum(metrics["steps"]),
    )
    after = ClientState(
        coefficients=end.coefficients,
        step_scale=end.step_scale,
        iterations=end.iterations,
        critic=None if client.critic is None else CriticState(end.critic, end.critic_optimiser),
        observations=_sum(client.observations, end.observations),
        rewards=_sum(client.rewards, end.rewards),
    )
    return update, after


def last_metrics(end: Carry) -> Metrics:
    """What a round's metrics say once, not for each iteration."""
    return {"coefficients": end.coefficients, "step_scale": end.step_scale}


def improve(
    task: Task,
    global_policy: Policy,
    base: Base,
    carry: Carry,
    data: Trajectories,
    index: Array,
    key: PRNGKeyArray,
) -> tuple[Carry, critic.CriticBatch, Metrics]:
    """One iteration of the policy, on the episodes that pi_{i-1} has run for T steps (phase 0).

    The statistics it acted on stay as they are for the whole iteration, so the importance ratio
    compares like with like.

    Args:
        task: world, algorithm and settings.
        global_policy: pi^t.
        base: the statistics that the client started the round with.
        carry: what the iteration before left.
        data: the episodes.
        index: i - 1.
        key: for the shuffling.

    Returns:
        What the next iteration starts with, but for the critic; what the critic is to learn from;
        and metrics.
    """
    learner = task.learner
    policies = Policies(carry.policy, global_policy)
    seen = seen_with(base, carry)
    observations = _add(carry.observations, data.observation, data.mask)
    rewards = _add(carry.rewards, data.reward, data.mask)
    reward = statistics.rescale(_sum(base.rewards, rewards), data.reward, learner.reward_clip)
    policy_batch, critic_batch = batches(
        learner, task.critic, policies, carry.critic, seen, data, reward
    )

    # Phase 1: E epochs on h_n.
    policy, policy_optimiser = improve_policy(
        task.algorithm,
        learner,
        policies,
        carry.policy_optimiser,
        policy_batch,
        carry.coefficients,
        carry.step_scale,
        index,
        key,
    )

    # Phases 2 and 3: measure on the whole batch, then adapt c2 and c1.
    measured = measure(task.algorithm, policy, policies, policy_batch)
    adapted = _adapt(task, carry.coefficients, measured)

    # The guard: outside the trust region the step counts for nothing, neither for the policy nor
    # for the coefficients. Doubling c2 instead would make plain SGD only less stable.
    bound = learner.guard_multiple * learner.d_local
    guarded = learner.guard & ~(_finite(policy) & (measured.kl_local <= bound))
    back = (carry.policy, carry.policy_optimiser, carry.coefficients, carry.step_scale * 0.5)
    on = (policy, policy_optimiser, adapted, jnp.minimum(carry.step_scale * 1.1, 1.0))
    policy, policy_optimiser, coefficients, step_scale = jax.tree.map(
        lambda b, o: jnp.where(guarded, b, o), back, on
    )
    after = carry._replace(
        policy=policy,
        policy_optimiser=policy_optimiser,
        coefficients=coefficients,
        step_scale=step_scale,
        iterations=carry.iterations + 1,
        observations=observations,
        rewards=rewards,
        replay=None if carry.replay is None else critic_batch,
    )
    metrics = {
        "kl_local": measured.kl_local,
        "kl_global": measured.d_global,
        "guarded": guarded,
        "steps": jnp.sum(policy_batch.weight),
        "train_return": jnp.mean(data.returns()),
    }
    return after, _with_replay(carry.replay, critic_batch), metrics


def fit_critic(task: Task, carry: Carry, batch: critic.CriticBatch, key: PRNGKeyArray) -> Carry:
    """The critic's part of an iteration; the next one needs it only after its episodes."""
    value_net, critic_optimiser = critic.improve_critic(
        task.critic, carry.critic, carry.critic_optimiser, batch, key
    )
    return carry._replace(critic=value_net, critic_optimiser=critic_optimiser)


def _adapt(task: Task, coefficients: dict[str, PyTree], measured: Measured) -> dict[str, PyTree]:
    bounds: Bounds = task.learner.c2_bounds
    if task.learner.c2_cap_by_advantage:
        bounds = capped(bounds, measured.max_advantage, measured.kl_local)
    c2 = towards_target(coefficients["c2"], measured.kl_local, task.learner.d_local, bounds)
    return task.algorithm.adapt(coefficients | {"c2": c2}, measured)


def _finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _shape_of(model: Moments | None, client: Moments | None) -> Moments | None:
    """Empty moments to collect into, if either side keeps such moments."""
    kept = model if client is None else client
    return None if kept is None else jax.tree.map(lambda x: jnp.zeros(x.shape), kept)


def _add(moments: Moments | None, x: Array, mask: Array) -> Moments | None:
    return None if moments is None else statistics.merge(moments, statistics.of_batch(x, mask))


def _sum(a: Moments | None, b: Moments | None) -> Moments | None:
    return None if a is None or b is None else statistics.merge(a, b)


def _no_replay(task: Task) -> critic.CriticBatch:
    """A batch of padding, as large as an iteration's."""
    samples = episodes_for(task.world, task.learner.steps) * task.world.horizon
    return critic.CriticBatch(
        jnp.zeros((samples, task.world.observation_size)), jnp.zeros(samples), jnp.zeros(samples)
    )


def _with_replay(
    previous: critic.CriticBatch | None, batch: critic.CriticBatch
) -> critic.CriticBatch:
    if previous is None:
        return batch
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), previous, batch)
