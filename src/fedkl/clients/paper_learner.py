"""The paper's learner: gradient steps on h_n, adaptive penalties, the guard, and a critic.

`PolicyOptimisation` is what a round (`fedkl.clients.round`) calls I times, and the one place that
reads as Algorithm 2: begin, clean, improve (phases 1 to 3), fit the critic, finish.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree

from fedkl.algorithms.base import Algorithm, RoundResult
from fedkl.clients.behaviour import Behaviour
from fedkl.clients.learner import LOCAL_HOOKS, Learner, register_learner
from fedkl.clients.records import (
    Carry,
    ClientState,
    CriticState,
    Metrics,
    Model,
    Start,
    Task,
    Trained,
    Update,
    first_coefficients,
)
from fedkl.clients.round import iteration_keys, observation_stats, policy_of
from fedkl.io.arrays import Array
from fedkl.learning import critic, statistics
from fedkl.learning.advantage import batches
from fedkl.learning.critic import CriticBatch, new_critic
from fedkl.learning.diagnostics import DIAGNOSTICS, diagnose
from fedkl.learning.penalty import Bounds, capped, towards_target
from fedkl.learning.policy import MLP, Policy, only, without
from fedkl.learning.policy_optimisation import (
    HookInput,
    Measured,
    PolicyBatch,
    at_step,
    gradient_steps,
    improve_policy,
    measure,
    optimiser,
    trains_shared,
)
from fedkl.learning.settings import CriticSettings, LearnerSettings, Sharing
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import Trajectories, drawn, samples_in
from fedkl.worlds.base import AnyWorld

SMALLEST_STEP = 2.0**-20
"""Factor on the step size that the guard does not go below; 1 again after 146 iterations."""
NOT_A_STEP = 2**31
"""Hooks' keys are folded with the number of a gradient step, which this is not."""


class Readings(NamedTuple):
    """An iteration's readings without what no sensor can mean."""

    observation: Float[Array, "h n o"]
    """As they enter the running statistics; policy and critic see them as they were, clipped."""
    reward: Float[Array, "h n"]
    outliers: Float[Array, ""]
    """Steps with a broken reading, of whatever it was."""


@register_learner
class PolicyOptimisation(LearnerSettings, Learner):
    """Policy optimisation on h_n with adaptive penalties, and a critic (Algorithm 2)."""

    name: ClassVar[str] = "policy-optimisation"
    summary: ClassVar[str] = "the paper's: gradient steps on h_n, with adaptive penalties"
    hooks: ClassVar[tuple[str, ...]] = LOCAL_HOOKS
    logged: ClassVar[tuple[str, ...]] = DIAGNOSTICS

    def check(self, algorithm: Algorithm, sharing: Sharing) -> None:
        algorithm.check(self, sharing)

    def networks(
        self, world: AnyWorld, critic: CriticSettings, key: PRNGKeyArray
    ) -> tuple[Policy, MLP]:
        policy_key, critic_key = jax.random.split(key)
        return Policy(world, self, policy_key), new_critic(world, critic, critic_key)

    def begin(self, task: Task, start: Start) -> Carry:
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
            policy_optimiser=optimiser(self).init(policy),
            critic=value_net,
            # A shared critic arrives with another average each round: old moments would be stale.
            critic_optimiser=critic.optimiser(task.critic).init(value_net)
            if client.critic is None
            else client.critic.optimiser,
            coefficients={n: first[c.across_rounds][n] for n, c in task.coefficients().items()},
            step_scale=client.step_scale,
            iterations=client.iterations,
            step_size_sum=jnp.zeros(()),
            observations=_none_yet(observation_stats(model, client)),
            rewards=_none_yet(_reward_stats(start)),
            replay=critic.padding(task.world, task.critic, samples_in(task.world, self))
            if task.critic.replay_previous
            else None,
            sample=_no_sample(task),
        )

    def behaviour(self, task: Task, start: Start, carry: Carry) -> Behaviour:
        seen = iteration_stats(self, start, carry)
        return Behaviour(self, carry.policy, seen, carry.iterations)

    def clean(self, task: Task, data: Trajectories) -> Readings:
        """Take outliers out of an iteration's data.

        A step of its own, because on the host it is compiled by itself: together with `improve` it
        would change how that rounds.
        """
        mask, beyond = data.mask, (self.outliers_beyond, self.reward_outliers_beyond)
        observation, unseen = statistics.without_outliers(data.observation, mask, beyond[0])
        reward, unpaid = statistics.without_outliers(data.reward, mask, beyond[1])
        broken = jnp.any(unseen, axis=-1) | unpaid
        return Readings(observation, reward, jnp.sum(broken, dtype=jnp.float32))

    def hook_input(
        self,
        start: Start,
        coefficients: dict[str, Float[Array, ""]],
        previous: Policy,
        batch: PolicyBatch,
        known: Moments | None,
        seen: Moments | None,
        index: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> HookInput:
        """Make what hooks see at the start of an iteration; `prepare` has not been called yet.

        Args:
            start: what the client started the round from.
            coefficients: as the iteration before left them.
            previous: pi_{i-1}, which collected the batch.
            batch: of the iteration.
            known: the statistics that observations were standardised with.
            seen: moments of the iteration's observations.
            index: i - 1.
            key: of the iteration's policy.
        """
        broadcast = policy_of(start.model, start.client)
        return HookInput(
            learner=self,
            coefficients=coefficients,
            client_state=start.client.own,
            server_state=start.model.shared,
            prepared=(),
            policy=previous,
            actions=previous.distribution(batch.previous),
            previous_policy=previous,
            global_policy=broadcast,
            global_actions=broadcast.distribution(batch.broadcast),
            personal=start.client.personal,
            batch=batch,
            statistics=known,
            broadcast_statistics=observation_stats(start.model, start.client),
            seen=seen,
            iteration=index,
            step=index * gradient_steps(self, batch),
            key=key,
        )

    def improve(
        self,
        task: Task,
        start: Start,
        carry: Carry,
        data: Trajectories,
        cleaned: Readings,
        index: Int[Array, ""],
    ) -> tuple[Carry, CriticBatch, Metrics]:
        """Improve the policy for one iteration.

        The statistics it acted on stay as they are for the whole iteration, so the importance ratio
        compares like with like.
        """
        algorithm = task.algorithm
        _, key, _ = iteration_keys(start.key, index)
        previous, broadcast = carry.policy, policy_of(start.model, start.client)
        known = iteration_stats(self, start, carry)
        seen = _moments(carry.observations, cleaned.observation, data.mask)
        rewards = merged(carry.rewards, _moments(carry.rewards, cleaned.reward, data.mask))
        paid = merged(_reward_stats(start), rewards)
        reward = statistics.rescale(paid, cleaned.reward, self.reward_clip)
        batch, critic_batch, value = batches(
            self, task.critic, previous, broadcast, carry.critic, known, data, reward
        )
        steps, number = gradient_steps(self, batch), algorithm.observations_sent
        now = self.hook_input(start, carry.coefficients, previous, batch, known, seen, index, key)
        hook_key, sample_key = jax.random.split(jax.random.fold_in(key, NOT_A_STEP))
        now = now._replace(prepared=algorithm.prepare(now, hook_key))

        # Phase 1: E epochs on h_n.
        policy, policy_optimiser = improve_policy(
            algorithm, now, carry.policy_optimiser, carry.step_scale, key
        )

        # Phases 2 and 3: measure on the whole batch, then adapt c2 and c1.
        at = at_step(now, policy, batch, (index + 1) * steps)
        measured = measure(algorithm, at)
        improved = carry._replace(
            policy=policy,
            policy_optimiser=policy_optimiser,
            coefficients=_adapt(task, at, measured),
        )
        counts, guarded = guard(self, carry, improved, measured.kl_local)

        step_sizes = steps * carry.step_scale
        if start.client.personal is not None:
            step_sizes = step_sizes * trains_shared(self, index)
        after = counts._replace(
            iterations=carry.iterations + 1,
            step_size_sum=carry.step_size_sum + jnp.where(guarded, 0.0, step_sizes),
            observations=merged(carry.observations, seen),
            rewards=rewards,
            replay=None if carry.replay is None else critic_batch,
            sample=drawn(number, cleaned.observation, data.mask, sample_key) if number else None,
        )
        metrics = {
            "kl_local": measured.kl_local,
            "distance_global": measured.distance_global,
            "guarded": guarded,
            "steps": jnp.sum(critic_batch.weight),
            "train_return": data._replace(reward=cleaned.reward).mean_return(),
            "outliers": cleaned.outliers,
            **diagnose(algorithm, now, at, value, critic_batch),
        }
        return after, critic.with_replay(carry.replay, critic_batch), metrics

    def fit_critic(
        self, task: Task, start: Start, carry: Carry, batch: CriticBatch, index: Int[Array, ""]
    ) -> Carry:
        _, _, key = iteration_keys(start.key, index)
        value_net, critic_optimiser = critic.improve_critic(
            task.critic, carry.critic, carry.critic_optimiser, batch, key
        )
        return carry._replace(critic=value_net, critic_optimiser=critic_optimiser)

    def finish(
        self, task: Task, start: Start, end: Carry, metrics: Metrics
    ) -> tuple[Trained, ClientState]:
        model, client, _ = start
        result = self.round_result(task, start, end, metrics)
        settled = task.algorithm.adapt_after_round(result)
        moved = result.step_size_sum > 0
        coefficients = {
            name: jnp.where(moved, settled[name], before)
            for name, before in end.coefficients.items()
        }
        own, message = task.algorithm.finish(result)
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

    def round_result(self, task: Task, start: Start, end: Carry, metrics: Metrics) -> RoundResult:
        """A round that is over, as an algorithm sees it."""
        model, client, key = start
        counts = ~metrics["guarded"]
        # The last iteration that counts; whatever is there if none does, as `step_size_sum` says.
        last = self.iterations - 1 - jnp.argmax(counts[::-1])
        begun = policy_of(model, client)
        sent = (without(policy, client.personal) for policy in (end.policy, begun))
        return RoundResult(
            learner=self,
            coefficients=end.coefficients,
            client_state=client.own,
            server_state=model.shared,
            policy=end.policy,
            global_policy=begun,
            move=jax.tree.map(jnp.subtract, *sent),
            step_size_sum=self.learning_rate * end.step_size_sum,
            distance_global=metrics["distance_global"][last],
            sample=end.sample,
            statistics=iteration_stats(self, start, end),
            broadcast_statistics=observation_stats(model, client),
            seen=end.observations,
            personal=client.personal,
            # No iteration has this number.
            key=jax.random.fold_in(key, self.iterations),
        )


def guard(
    learner: LearnerSettings, before: Carry, after: Carry, kl_local: Float[Array, ""]
) -> tuple[Carry, Bool[Array, ""]]:
    """Roll an iteration back that leaves the trust region.

    Outside of it the step counts for nothing, neither for the policy nor for the coefficients, and
    the step size is halved; inside, it recovers. Doubling c2 instead would make plain SGD only less
    stable: once the policy's deviation is small, a large c2 makes the objective steeper, not the
    step safer.

    Returns:
        What counts of the iteration, and whether it was rolled back.
    """
    bound = learner.guard_multiple * learner.d_local
    guarded = learner.guard & ~(_finite(after.policy) & (kl_local <= bound))
    # Never so small that it could not recover.
    scale = jnp.maximum(before.step_scale, SMALLEST_STEP)
    back = before._replace(step_scale=jnp.maximum(scale * 0.5, SMALLEST_STEP))
    on = after._replace(step_scale=jnp.minimum(scale * 1.1, 1.0))
    fields = ("policy", "policy_optimiser", "coefficients", "step_scale")
    counts = jax.tree.map(
        lambda b, o: jnp.where(guarded, b, o),
        {name: getattr(back, name) for name in fields},
        {name: getattr(on, name) for name in fields},
    )
    return after._replace(**counts), guarded


def iteration_stats(learner: LearnerSettings, start: Start, carry: Carry) -> Moments | None:
    """The statistics that a client's observations are standardised with in an iteration."""
    before = observation_stats(start.model, start.client)
    if learner.statistics_from == "round":
        return before
    return merged(before, carry.observations)


def merged(a: Moments | None, b: Moments | None) -> Moments | None:
    """Both together, if such moments are kept."""
    return None if a is None or b is None else statistics.merge(a, b)


def _reward_stats(start: Start) -> Moments | None:
    own = start.client.rewards
    return start.model.rewards if own is None else own


def _none_yet(moments: Moments | None) -> Moments | None:
    """Empty moments to collect into, if such moments are kept."""
    return None if moments is None else jax.tree.map(lambda x: jnp.zeros(x.shape), moments)


def _no_sample(task: Task) -> Float[Array, "s o"] | None:
    number = task.algorithm.observations_sent
    return jnp.zeros((number, task.world.observation_size)) if number else None


def _finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _adapt(task: Task, at: HookInput, measured: Measured) -> dict[str, Float[Array, ""]]:
    learner = at.learner
    bounds: Bounds = learner.c2_bounds
    if learner.c2_cap_by_advantage:
        bounds = capped(bounds, measured.max_advantage, measured.kl_local)
    c2 = towards_target(at.coefficients["c2"], measured.kl_local, learner.d_local, bounds)
    return task.algorithm.adapt(at._replace(coefficients=at.coefficients | {"c2": c2}), measured)


def _moments(like: Moments | None, x: Array, mask: Array) -> Moments | None:
    """The moments of a batch, if such moments are kept."""
    if like is None:
        return None
    return statistics.of_batch(x, mask, products=like.products is not None)
