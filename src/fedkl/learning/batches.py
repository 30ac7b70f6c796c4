"""From an iteration's episodes to what the policy and the critic learn from."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Float

from fedkl.arrays import Array
from fedkl.learning import advantage, critic, statistics
from fedkl.learning.networks import MLP
from fedkl.learning.policy_optimisation import Policies, PolicyBatch
from fedkl.learning.settings import CriticSettings, LearnerSettings
from fedkl.learning.statistics import Moments
from fedkl.learning.trajectories import Trajectories


@runtime_checkable
class HasSettings(Protocol):
    """Whatever holds the settings of local training."""

    @property
    def learner(self) -> LearnerSettings: ...
    @property
    def critic(self) -> CriticSettings: ...


def batches(
    task: HasSettings,
    policies: Policies,
    value_net: MLP,
    seen: Moments | None,
    data: Trajectories,
    reward: Float[Array, "h n"],
) -> tuple[PolicyBatch, critic.CriticBatch]:
    """Advantages and targets of an iteration's episodes, flattened to samples.

    Args:
        task: for discount and advantages, and which targets the critic learns from.
        policies: pi_{i-1}, which ran the episodes, and pi^t.
        value_net: the critic as it is.
        seen: the statistics that pi_{i-1} saw with.
        data: the episodes.
        reward: their rewards, scaled.
    """
    learner = task.learner
    observation = statistics.standardise(seen, data.observation, learner.observation_clip)
    last = statistics.standardise(seen, data.last_observation, learner.observation_clip)
    seen_by_critic = critic.with_time(observation) if task.critic.sees_time else observation
    value = critic.values(value_net, seen_by_critic)
    if learner.bootstrap_truncation:  # no config has that and a critic that sees the time left
        last_value = critic.values(value_net, last)
    else:
        last_value = jnp.zeros(value.shape[1:])
    after = (last_value, data.terminated, data.mask, learner.discount)
    gain = advantage.advantages(reward, value, *after, learner.gae_lambda)
    if task.critic.targets == "gae":
        target = gain + value
    else:
        target = advantage.advantages(reward, value, *after, 1.0) + value

    def flat(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    weight = flat(data.mask).astype(jnp.float32)
    gain = flat(gain)
    if learner.standardise_advantages:
        moments = statistics.of_batch(gain, weight)
        gain = weight * (gain - moments.mean) / statistics.deviation(moments, 1e-8)
    states = flat(observation)
    action = flat(data.action)
    previous = policies.previous.network(states)
    policy_batch = PolicyBatch(
        observation=states,
        action=action,
        advantage=gain,
        log_prob=policies.previous.distribution(previous).log_prob(action),
        previous=previous,
        broadcast=policies.broadcast.network(states),
        weight=weight,
    )
    return policy_batch, critic.CriticBatch(flat(seen_by_critic), flat(target), weight)
