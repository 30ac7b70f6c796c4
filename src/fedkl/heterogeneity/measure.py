"""The basis that advantages are fitted and compared in: features of states times functions of
actions.

All clients must have the same one, so whatever is random in it is drawn from one seed for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedkl.clients.behaviour import Behaviour
from fedkl.clients.learner import Learner
from fedkl.clients.records import Start, Task
from fedkl.clients.round import observation_stats, policy_of
from fedkl.clients.sources import Source
from fedkl.io.arrays import AnyArray, Array, Scalar
from fedkl.learning import statistics
from fedkl.learning.distributions import Categorical, Distribution, Gaussian
from fedkl.learning.products import sum_of_products
from fedkl.learning.trajectories import Trajectories
from fedkl.worlds.base import AnyWorld, Discrete

SEED = 0
"""Of the basis, everywhere and always: vectors in two bases cannot be compared."""

StateBasis = Callable[[Float[Array, "*b o"], int, float], Float[Array, "*b f"]]


def fourier(state: Float[Array, "*b o"], number: int, length_scale: float) -> Float[Array, "*b f"]:
    """Random Fourier features (Rahimi and Recht 2007): their products are close to a Gaussian
    kernel, so states near to each other count as alike, in any dimension. The first is constant.

    Args:
        state: standardised observations.
        number: of features.
        length_scale: distance over which states are alike, in deviations of an observation's
            entries; entries are averaged over, so that it suits many as it suits few.
    """
    entries = state.shape[-1]
    directions, phases = jax.random.split(jax.random.key(SEED))
    spread = 1 / (length_scale * math.sqrt(entries))
    frequency = spread * jax.random.normal(directions, (entries, number), state.dtype)
    phase = jax.random.uniform(phases, (number,), state.dtype, maxval=2 * math.pi)
    angle = state @ frequency.at[:, 0].set(0.0) + phase.at[0].set(0.0)
    return math.sqrt(2 / number) * jnp.cos(angle)


def buckets(state: Float[Array, "*b o"], number: int, length_scale: float) -> Float[Array, "*b f"]:
    """Return one-hot cells of rounded observations, as the paper's matrices have rows.

    A cell's number is a sum over its coordinates, each times a number of its own, modulo the number
    of features. So states that are told as a one-hot vector or as a whole number have a feature
    each, if there are features enough; other cells may share one by chance.

    Args:
        state: standardised observations.
        number: of features.
        length_scale: width of a cell.
    """
    entries = state.shape[-1]
    cell = jnp.round(state / length_scale).astype(jnp.int32)
    drawn = jax.random.permutation(jax.random.key(SEED), number)
    factor = (drawn - drawn[0] + 1) % number  # all different, and the first is 1
    factor = jnp.take(factor, jnp.arange(entries), mode="wrap")
    return jax.nn.one_hot(jnp.sum(cell * factor, axis=-1) % number, number, dtype=state.dtype)


STATE_BASES: dict[str, StateBasis] = {f.__name__: f for f in (fourier, buckets)}


def centred(actions: Distribution, action: Array) -> Float[Array, "*b k"]:
    """Return functions of the action taken, whose mean under pi is 0 in every state.

    Of finitely many actions, an indicator of each less its probability. Of a Gaussian, the first
    two orthonormal polynomials in each entry's distance from the mean, in deviations: all that a
    small change of the policy's mean and deviation can see of an advantage.
    """
    if isinstance(actions, Categorical):
        probability = jax.nn.softmax(actions.logits)
        return jax.nn.one_hot(action, probability.shape[-1]) - probability
    assert isinstance(actions, Gaussian)
    noise = (action - actions.mean) * jnp.exp(-actions.log_std)
    return jnp.concatenate([noise, (noise**2 - 1) / math.sqrt(2)], axis=-1)


def over_actions(
    actions: Distribution, weights: Float[Array, "*b k"]
) -> tuple[Float[Array, "*b k"], Float[Array, "*b k"]]:
    """Return the advantage that has these weights on `centred` functions, in each state.

    Returns:
        The products with all functions, summed over actions: with an indicator of each of finitely
        many actions, all alike, or with the polynomials of a Gaussian, whose actions count by
        their density (without any weight there would be no end to them). And those with the
        `centred` functions, in the mean under pi.
    """
    if isinstance(actions, Gaussian):
        return weights, weights  # orthonormal under pi
    probability = jax.nn.softmax(actions.logits)
    advantage = weights - jnp.sum(probability * weights, axis=-1, keepdims=True)
    return advantage, probability * advantage


RIDGE_OF_VALUES = 1e-5
"""Relative to the mean of their squares: what is missing in a value is taken for an advantage."""


class Measurement(NamedTuple):
    """All that leaves a client: three vectors in the shared basis for each half."""

    weighted: Float[AnyArray, "2 p"]
    """D_n A_n: the sum over actions of A times phi, expected over discounted visits."""
    expected: Float[AnyArray, "2 p"]
    """A times psi, phi less its mean under pi, expected over discounted visits and pi."""
    advantage: Float[AnyArray, "2 p"]
    """w, of the fitted advantage w . psi."""


class Measure(eqx.Module):
    """Follows the broadcast policy, and measures where it leads and what is gained there.

    Changes nothing on the client.
    """

    name: ClassVar[str] = "measure"

    trajectories: int = eqx.field(static=True)
    """M, half of them for each half."""
    basis: str = eqx.field(static=True)
    """One of `STATE_BASES`."""
    features: int = eqx.field(static=True)
    length_scale: float = eqx.field(static=True)
    ridge: float = eqx.field(static=True)
    """Of the fitted advantages, relative to the mean of their squares."""

    def __call__(self, task: Task, start: Start, source: Source) -> tuple[Measurement, None]:
        acts = self.behaviour(task, start)
        data = source.collect(acts, self.trajectories, start.key)
        return self.measured(acts, data), None

    def size(self, world: AnyWorld) -> int:
        """Return the length of each vector."""
        actions = world.actions
        functions = actions.number if isinstance(actions, Discrete) else 2 * actions.size
        return self.features * functions

    def behaviour(self, task: Task, start: Start) -> Behaviour:
        """Return the client's behaviour: pi itself, without a first iteration's exploration."""
        policy = policy_of(start.model, start.client)
        seen = observation_stats(start.model, start.client)
        return Behaviour(task.learner, policy, seen, jnp.ones((), jnp.int32))

    def measured(self, acts: Behaviour, data: Trajectories) -> Measurement:
        """Return the measurement of some trajectories, wherever they were run.

        Args:
            acts: how they were run.
            data: whole episodes.
        """
        return _measured(self, acts, data)


class Seen(NamedTuple):
    """Trajectories as the fit sees them; steps that do not count are 0."""

    state: Float[Array, "h n f"]
    """Features of the state."""
    after: Float[Array, "h n f"]
    """Features of what follows; 0 where nothing does."""
    action: Float[Array, "h n k"]
    """Centred functions of the action."""
    reward: Float[Array, "h n"]
    output: Float[Array, "h n a"]
    """Of the policy's network."""


@jax.jit
def _measured(work: Measure, acts: Behaviour, data: Trajectories) -> Measurement:
    seen = _seen(work, acts, data)
    half = data.reward.shape[1] // 2
    halves = jax.tree.map(lambda x: jnp.stack([x[:, :half], x[:, half : 2 * half]]), seen)
    # One after the other, also where clients are vmapped: products of large matrices gain nothing
    # from being batched, and what is computed together must be held together.
    alone = jax.custom_batching.sequential_vmap(  # type: ignore[no-untyped-call]  # JAX's own
        partial(_of_half, work)
    )
    return Measurement(*jax.lax.map(lambda part: alone(acts, part), halves))


def _seen(work: Measure, acts: Behaviour, data: Trajectories) -> Seen:
    def standard(x: Float[Array, "*b o"]) -> Float[Array, "*b o"]:
        return statistics.standardise(acts.observations, x, acts.learner.observation_clip)

    def features(x: Float[Array, "*b o"]) -> Float[Array, "*b f"]:
        return STATE_BASES[work.basis](x, work.features, work.length_scale)

    observation = standard(data.observation)
    output = acts.policy.network(observation)
    state = features(observation)
    after = jnp.concatenate([state[1:], features(standard(data.last_observation))[None]])
    if data.truncated is not None and data.after is not None:
        beyond = features(standard(data.after))
        after = jnp.where(data.truncated[..., None], beyond, after)
    counts = data.mask[..., None]
    return Seen(
        state=jnp.where(counts, state, 0.0),
        after=jnp.where(counts & ~_over(data, acts.learner)[..., None], after, 0.0),
        action=centred(acts.policy.distribution(output), data.action),
        reward=jnp.where(data.mask, data.reward, 0.0),
        output=output,
    )


def _of_half(
    work: Measure, acts: Behaviour, seen: Seen
) -> tuple[Float[Array, " p"], Float[Array, " p"], Float[Array, " p"]]:
    """Return a half's part of each vector of a `Measurement`."""
    learner, (steps, episodes) = acts.learner, seen.reward.shape
    time = time_left(steps, learner)
    weights = fit_advantage(seen, time, learner.discount, learner.gae_lambda, work.ridge)
    actions = acts.policy.distribution(seen.output)
    discounts = learner.discount ** jnp.arange(steps) / episodes
    visits = discounts[:, None, None] * seen.state
    alike, taken = over_actions(actions, seen.state @ weights.T)
    weighted, expected = _products(alike, visits), _products(taken, visits)
    return weighted.reshape(-1), expected.reshape(-1), weights.reshape(-1)


def _over(data: Trajectories, learner: Learner) -> Array:
    """Return True for steps after which nothing of value follows."""
    if learner.bootstrap_truncation:
        return data.terminated
    return data.ended().at[-1].set(True)


def time_left(steps: int, learner: Learner) -> Float[Array, "t v"]:
    """Return the inputs of values besides the state, before each step and after the last.

    Only 1, or, if a time limit ends all that is worth anything, also the discounted sum of the
    steps that are left, on a scale from 1 to -1: the value of a steady reward is linear in that.
    """
    ones = jnp.ones(steps + 1)
    if learner.bootstrap_truncation:
        return ones[:, None]
    sums = jnp.cumsum(learner.discount ** jnp.arange(steps))
    left = jnp.concatenate([sums[::-1], jnp.zeros(1)])
    return jnp.stack([ones, 2 * left / left[0] - 1], axis=-1)


def fit_advantage(
    seen: Seen, time: Float[Array, "t v"], discount: Scalar, gae_lambda: Scalar, ridge: float
) -> Float[Array, "k f"]:
    """Return the weights of the advantage on each product of a function of the action and a feature
    of the state, by LSTD(lambda) for values and advantages together.

    It solves sum_t e_t (V(s_t) + w . psi(s_t, a_t) - r_t - gamma V(s_{t+1})) = 0 for w and for V,
    which is linear in features of the state times those of time; e_t sums all features over the
    episode's steps up to t, discounted by gamma lambda. Fitted one after the other, a value that
    has seen the data would explain some of the advantage away.

    Args:
        seen: some trajectories.
        time: see `time_left`.
        discount: gamma.
        gae_lambda: lambda.
        ridge: of the advantages, relative to the mean of their squares.
    """
    values, functions = time.shape[1], seen.action.shape[-1]
    now = jnp.broadcast_to(time[:-1, None], (*seen.reward.shape, values))
    features = _outer(jnp.concatenate([now, seen.action], axis=-1), seen.state)
    later = jnp.pad(time[1:], ((0, 0), (0, functions)))[:, None]
    residual = features - discount * _outer(later, seen.after)

    def on(before: Array, now: Array) -> tuple[Array, Array]:
        trace = now + discount * gae_lambda * before
        return trace, trace

    # A trace goes on after an episode's end, but what it is multiplied with is 0 there.
    traces = jax.lax.scan(on, jnp.zeros_like(features[0]), features)[1]
    squares = jnp.sum(features**2, axis=(0, 1)).reshape(values + functions, -1)
    mean = jnp.where(
        jnp.arange(values + functions)[:, None] < values,
        RIDGE_OF_VALUES * jnp.mean(squares[:values]),
        ridge * jnp.mean(squares[values:]),
    )
    # Not 0, so that the weights of what never happened are 0.
    ridges = jnp.broadcast_to(mean + 1e-30, squares.shape).reshape(-1)
    solved = jnp.linalg.solve(
        _products(traces, residual) + jnp.diag(ridges),
        jnp.sum(traces * seen.reward[..., None], axis=(0, 1)),
    )
    return solved.reshape(squares.shape)[values:]


def _outer(x: Float[Array, " h #n x"], y: Float[Array, "h n y"]) -> Float[Array, "h n xy"]:
    """Return all products of an entry of x and one of y, in each step."""
    return (x[..., :, None] * y[..., None, :]).reshape(*y.shape[:2], -1)


def _products(x: Float[Array, "h n x"], y: Float[Array, "h n y"]) -> Float[Array, "x y"]:
    """Summed over all steps; flat, because that is what matrix products are fast for."""
    left, right = (z.reshape(-1, z.shape[-1]) for z in (x, y))
    return sum_of_products(left, right, jax.lax.Precision.HIGHEST)
