"""From an iteration's episodes to what policy and critic learn from: advantages and targets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from fedkl.io.arrays import Array
from fedkl.learning import critic, statistics
from fedkl.learning.policy import MLP, Policy
from fedkl.learning.policy_optimisation import PolicyBatch
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import Trajectories


def advantages(
    reward: Float[Array, "h n"],
    value: Float[Array, "h n"],
    next_value: Float[Array, "h n"],
    continues: Bool[Array, "h n"],
    mask: Bool[Array, "h n"],
    discount: Float[Array, ""] | float,
    gae_lambda: Float[Array, ""] | float,
) -> Float[Array, "h n"]:
    """GAE(gamma, lambda) (Schulman et al. 2016).

    Args:
        reward: of columns of steps.
        value: the critic's, of the state that a step starts from.
        next_value: of the state that it leads to.
        continues: whether the next row is the same episode's next step.
        mask: whether an entry counts.
        discount: gamma.
        gae_lambda: lambda; with lambda = 1 the result plus `value` is the discounted return.

    Returns:
        The advantages, 0 where `mask` is false.
    """
    delta = reward + discount * next_value - value
    delta = jnp.where(mask, delta, 0.0)

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, continues = now
        advantage = delta + discount * gae_lambda * continues * later
        return advantage, advantage

    nothing = jnp.zeros_like(delta[0])
    # A row of an agent that waits takes nothing from the episode after it.
    return jax.lax.scan(backwards, nothing, (delta, continues & mask), reverse=True)[1]


def batches(
    learner: LearnerSettings,
    settings: CriticSettings,
    previous: Policy,
    broadcast: Policy,
    value_net: MLP,
    seen: Moments | None,
    data: Trajectories,
    reward: Float[Array, "h n"],
) -> tuple[PolicyBatch, critic.CriticBatch, Float[Array, " m"]]:
    """Return advantages, targets and the critic's values of an iteration's episodes, flattened to
    samples.

    Args:
        learner: for discount and advantages.
        settings: of the critic, for its targets.
        previous: pi_{i-1}, which ran the episodes.
        broadcast: pi^t.
        value_net: the critic as it is.
        seen: the statistics that pi_{i-1} saw with.
        data: the episodes.
        reward: their rewards, scaled.
    """

    def standard(x: Float[Array, "*b o"]) -> Float[Array, "*b o"]:
        return statistics.standardise(seen, x, learner.observation_clip)

    observation = standard(data.observation)
    seen_by_critic, last = observation, standard(data.last_observation)
    if settings.sees_time:
        limit, elapsed = len(data.reward), data.elapsed()
        seen_by_critic = critic.with_time(observation, elapsed, limit)
        counted = jnp.cumsum(data.mask, axis=0)
        final = data.mask & (counted == counted[-1])
        lasted = jnp.max(jnp.where(final, elapsed + 1, 0), axis=0)
        last = critic.with_time(last, lasted, limit)
    value = critic.values(value_net, seen_by_critic)
    value_at_cut: Float[Array, "*hn"] = jnp.zeros(())
    if data.after is not None and learner.bootstrap_truncation:
        # No config has that and a critic that sees the time left.
        value_at_cut = critic.values(value_net, standard(data.after))
    last_value = critic.values(value_net, last)
    next_value, continues = next_values(
        data, value, last_value, value_at_cut, learner.bootstrap_truncation
    )
    steps = (reward, value, next_value, continues, data.mask)
    gain = advantages(*steps, learner.discount, learner.gae_lambda)
    if settings.targets == "gae":
        target = gain + value
    else:
        target = advantages(*steps, learner.discount, 1.0) + value

    def flat(x: Array) -> Array:
        if learner.collect == "episodes":
            return x.reshape(-1, *x.shape[2:])
        # Column by column, so that the steps that count come first.
        return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])[: learner.steps]

    weight = flat(data.mask).astype(jnp.float32)
    gain = flat(gain)
    if learner.standardise_advantages:
        moments = statistics.of_batch(gain, weight)
        gain = weight * (gain - moments.mean) / statistics.deviation(moments, 1e-8)
    states = flat(observation)
    action = flat(data.action)
    visited = weight
    if learner.discounted_states:
        visited = weight * learner.discount ** flat(data.elapsed())
    outputs = previous.network(states)
    policy_batch = PolicyBatch(
        observation=states,
        action=action,
        advantage=gain,
        log_prob=previous.distribution(outputs).log_prob(action),
        previous=outputs,
        broadcast=broadcast.network(states),
        weight=visited,
    )
    critic_batch = critic.CriticBatch(flat(seen_by_critic), flat(target), weight)
    return policy_batch, critic_batch, flat(value)


def next_values(
    data: Trajectories,
    value: Float[Array, "h n"],
    last_value: Float[Array, " n"],
    value_at_cut: Float[Array, "*hn"],
    bootstrap_truncation: bool,
) -> tuple[Float[Array, "h n"], Bool[Array, "h n"]]:
    """Return the value of the state that each step leads to, and whether its episode continues.

    Three things can be after a step that is the last of its episode in the data. A true end is
    worth nothing. A time limit is worth what the settings say. A cut, where only the data end, is
    worth the value of what would have come. None of them continues.

    Args:
        data: the episodes.
        value: the critic's value of each step's state.
        last_value: of the state after each column's last step.
        value_at_cut: of the state after each step with which a limit of the world's own cut an
            episode off.
        bootstrap_truncation: whether there is any value after a time limit.
    """
    last = last_steps(data)
    next_value = jnp.concatenate([value[1:], last_value[None]])
    next_value = jnp.where(last, last_value, next_value)
    if not bootstrap_truncation:
        at_limit = data.elapsed() == len(data.reward) - 1
        next_value = jnp.where(at_limit, 0.0, next_value)
    if data.truncated is not None:
        next_value = jnp.where(data.truncated, value_at_cut, next_value)
    next_value = jnp.where(data.terminated, 0.0, next_value)
    return next_value, ~data.ended() & ~last


def last_steps(data: Trajectories) -> Bool[Array, "h n"]:
    """The last step of each column that counts; also those after which an agent waits."""
    return data.mask & ~jnp.concatenate([data.mask[1:], jnp.zeros_like(data.mask[:1])])
