"""The cost of averaging parameters: the average beside a mixture of the policies that went into it.

The paper's theory averages policies, pi^{t+1}(a|s) = sum_k q_k pi_k(a|s); its algorithm, as all
federated averaging, averages parameters. And its bounds have the largest divergence of all states,
its algorithm the mean over those that a client visits. A client that is asked for this runs both
policies in its own world, and says how far apart they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fedkl.clients.records import Model, Start, Task
from fedkl.clients.round import observation_stats, policy_of
from fedkl.clients.sources import Source, Traced
from fedkl.io.arrays import AnyArray, Array
from fedkl.learning import statistics
from fedkl.learning.distributions import sqrt_kl
from fedkl.learning.minibatches import weighted_mean
from fedkl.learning.policy import Policy
from fedkl.learning.trajectories import Trajectories


class Averaged(NamedTuple):
    """Returns and divergences that a client measures in its world."""

    mixture: Float[AnyArray, ""]
    """The mean return of the mixture of the members' policies."""
    members: Float[AnyArray, " k"]
    """The mean return of each member's policy."""
    kl: Float[AnyArray, ""]
    """Mean KL(mixture || average) over the states that the mixture visits, estimated from the
    actions that it took."""
    tv: Float[AnyArray, ""]
    """Likewise the mean total variation between the two."""
    distance_mean: Float[AnyArray, " k"]
    """Mean sqrt(KL(pi^t || pi_k) / 2) over the states that pi^t visits, for each member."""
    distance_max: Float[AnyArray, " k"]
    """The largest of them."""


class Members(NamedTuple):
    """The policies of a round beside the one that the server made of them."""

    before: Policy
    """pi^t."""
    policies: Policy
    """pi_k of each member, stacked."""
    weights: Float[AnyArray, " k"]
    """q_k: their shares, which sum to 1."""


def with_members(
    model: Model, before: Policy, members: Sequence[Policy], weights: Sequence[float]
) -> Model:
    """Make the model that is sent with `EvaluateAveraging`: the members are what is shared.

    Args:
        model: that of the round's end.
        before: the policy that the round began with.
        members: the policies that were averaged.
        weights: their shares.
    """
    stacked = jax.tree.map(lambda *x: np.stack(x), *members)
    shares = np.asarray(weights, np.float32) / np.float32(np.sum(weights))
    return replace(model, shared=Members(before, stacked, shares))


class EvaluateAveraging(eqx.Module):
    """Compares the average of some members' parameters with the mixture of their policies.

    Everybody acts with the statistics of the round's end, so that nothing but the policies
    differs, and starts from the same states as in `Evaluate`. Changes nothing on the client.
    """

    name: ClassVar[str] = "averaging"

    episodes: int = eqx.field(static=True)

    def __call__(self, task: Task, start: Start, source: Source) -> tuple[Averaged, None]:
        assert isinstance(source, Traced)
        assert isinstance(start.model.shared, Members)
        before, members, weights = start.model.shared
        average = policy_of(start.model, start.client)
        seen = observation_stats(start.model, start.client)

        def standard(observation: Float[Array, "*b o"]) -> Float[Array, "*b o"]:
            return statistics.standardise(seen, observation, task.learner.observation_clip)

        def run(policy: Policy) -> Trajectories:
            def act(observation: Float[Array, "n o"], key: PRNGKeyArray) -> Array:
                return policy(standard(observation)).sample(key)

            return source.collect(act, self.episodes, start.key)

        def act_by_lot(observation: Float[Array, "n o"], key: PRNGKeyArray) -> Array:
            """Draw a member for each state, as a mixture of policies does."""
            return draw_from_mixture(members, weights, standard(observation), key)

        mixed = source.collect(act_by_lot, self.episodes, start.key)
        kl, tv = apart_from_mixture(
            average,
            members,
            weights,
            standard(mixed.observation),
            mixed.action,
            mixed.mask.astype(jnp.float32),
        )
        visited = run(before)
        states = standard(visited.observation)
        expected = before(states)
        distances = jax.lax.map(lambda policy: sqrt_kl(expected, policy(states)), members)
        counts = visited.mask.astype(jnp.float32)
        found = Averaged(
            mixture=jnp.mean(mixed.returns()),
            members=jax.lax.map(lambda policy: jnp.mean(run(policy).returns()), members),
            kl=kl,
            tv=tv,
            distance_mean=jax.vmap(lambda d: weighted_mean(d, counts))(distances),
            distance_max=jnp.max(counts * distances, axis=(1, 2)),
        )
        return found, None


def draw_from_mixture(
    members: Policy, weights: Float[AnyArray, " k"], states: Float[Array, "n o"], key: PRNGKeyArray
) -> Array:
    """An action for each state, by the policy of a member that is drawn for it.

    Args:
        members: stacked.
        weights: the probability of each.
        states: standardised observations.
        key: for both draws.
    """
    which, how = jax.random.split(key)
    drawn = jax.random.categorical(which, jnp.log(weights), shape=states.shape[:1])
    actions = jax.vmap(lambda policy: policy(states).sample(how))(members)
    return actions[drawn, jnp.arange(states.shape[0])]


def apart_from_mixture(
    average: Policy,
    members: Policy,
    weights: Float[AnyArray, " k"],
    states: Float[Array, "*b o"],
    actions: Array,
    counts: Float[Array, "*b"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean KL(mixture || average) and total variation, from states and the mixture's actions there.

    A mixture of Gaussians has neither in closed form. Both are means over its own actions: of
    log(mixture / average), and of max(0, 1 - average / mixture), which lies between 0 and 1.

    Args:
        average: one policy.
        members: those of the mixture, stacked.
        weights: their shares.
        states: standardised observations.
        actions: one in each state, drawn from the mixture.
        counts: 0 where a state does not count.
    """
    each = jax.vmap(lambda policy: policy(states).log_prob(actions))(members)
    shares = jnp.log(weights).reshape(-1, *[1] * (each.ndim - 1))
    mixture = jax.nn.logsumexp(each + shares, axis=0)
    ratio = average(states).log_prob(actions) - mixture
    missing = jnp.maximum(0.0, -jnp.expm1(ratio))
    return weighted_mean(-ratio, counts), weighted_mean(missing, counts)
