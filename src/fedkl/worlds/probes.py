"""Probe worlds: so small that the right answer is known, for testing and debugging algorithms.

In each, clients differ by a shift that is spaced evenly over [-spread, spread] and averages to
zero, so the best common policy is that of the unshifted client (unless `PointTarget.stiffness`
makes some clients care more than others). A config may draw the parameters by itself instead.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedkl.core.settings import setting
from fedkl.worlds.base import Continuous, Discrete, Transition, World, register_world
from fedkl.worlds.heterogeneous import Rows
from fedkl.worlds.parameters import Parameter

CHAIN_LENGTH = 4
_SPREAD_HELP = "how far clients differ; 0 makes them identical"


def _shifts(n: int, spread: float | Float[Array, ""]) -> Float[Array, " n"]:
    return spread * jnp.linspace(-1.0, 1.0, n) if n > 1 else jnp.zeros(1)


class BanditParams(NamedTuple):
    """The mean reward of each arm."""

    means: Float[Array, "*n 3"]


@register_world
class Bandit(World):
    """One pull of one of three arms.

    The arms' means are 0, 0.5 and 1, tilted by the client's shift s to s, 0.5 and 1 - s. The best
    common policy always pulls arm 2; a client with s > 0.5 would rather pull arm 0.
    """

    name: ClassVar[str] = "probe-bandit"
    summary: ClassVar[str] = "one step, three arms with known mean rewards"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Discrete] = Discrete(3)
    horizon: ClassVar[int] = 1
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("means", (0.0, 0.5, 1.0), help="the mean reward of each arm"),
    )
    params: ClassVar[type] = BanditParams

    spread: float = setting(0.0, _SPREAD_HELP, low=0.0)
    noise: float = setting(0.1, "standard deviation of an arm's reward", low=0.0)

    def default_rows(self, n: int) -> Rows:
        """Return the tilted means of n clients."""
        tilt = jnp.asarray([1.0, 0.0, -1.0])
        means = jnp.asarray([0.0, 0.5, 1.0]) + _shifts(n, self.spread)[:, None] * tilt
        return {"means": np.asarray(means)}

    def reset(
        self, params: BanditParams, key: PRNGKeyArray
    ) -> tuple[tuple[()], Float[Array, " 1"]]:
        """Start without a state; the observation is always 1."""
        return (), jnp.ones(1, params.means.dtype)

    def step(
        self, params: BanditParams, state: tuple[()], action: Int[Array, ""], key: PRNGKeyArray
    ) -> Transition:
        """Pull an arm for its reward, with normal noise; the episode is over."""
        dtype = params.means.dtype
        reward = params.means[action] + self.noise * jax.random.normal(key, (), dtype)
        return Transition(state, jnp.ones(1, dtype), reward, jnp.asarray(True))


class PointParams(NamedTuple):
    """The action that the client wants, and how much it minds another."""

    target: Float[Array, "*n"]
    stiffness: Float[Array, "*n"] | None = None
    """None: 1 for all clients."""


@register_world
class PointTarget(World):
    """One real number a, rewarded by -k (a - target)^2, where k is the client's stiffness.

    The best common action is the mean of the targets, weighted by k: sum k_n t_n / sum k_n, which
    is `centre` if all clients have the same stiffness. A normal policy with mean m and standard
    deviation s expects -k ((m - target)^2 + s^2).
    """

    name: ClassVar[str] = "probe-point"
    summary: ClassVar[str] = "one step, one real action, reward -stiffness (action - target)^2"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[Continuous] = Continuous(1)
    horizon: ClassVar[int] = 1
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("target", 0.5, help="the action that the client wants"),
        Parameter("stiffness", 1.0, 0.0, help="how much it minds another"),
    )
    params: ClassVar[type] = PointParams

    centre: float = setting(0.5, "the mean of the clients' targets")
    spread: float = setting(0.0, _SPREAD_HELP, low=0.0)
    stiffness: float = setting(
        1.0,
        "how much steeper the last client's reward is than the first's; 1 makes them identical",
        above=0,
        static=True,
    )

    def default_rows(self, n: int) -> Rows:
        """Space targets evenly around the centre, and stiffness geometrically around 1."""
        rows = {"target": np.asarray(self.centre + _shifts(n, self.spread))}
        if self.stiffness != 1:
            rows["stiffness"] = np.asarray(self.stiffness ** _shifts(n, 0.5))
        return rows

    def reset(self, params: PointParams, key: PRNGKeyArray) -> tuple[tuple[()], Float[Array, " 1"]]:
        """Start without a state; the observation is always 1."""
        return (), jnp.ones(1, params.target.dtype)

    def step(
        self, params: PointParams, state: tuple[()], action: Float[Array, " 1"], key: PRNGKeyArray
    ) -> Transition:
        """Reward with minus stiffness times the squared distance; the episode is over."""
        reward = -jnp.square(action[0] - params.target)
        if params.stiffness is not None:
            reward = params.stiffness * reward
        return Transition(state, jnp.ones(1, params.target.dtype), reward, jnp.asarray(True))


class ChainParams(NamedTuple):
    """The reward of each step, and that of arriving at the end on top."""

    step_reward: Float[Array, "*n"]
    end_reward: Float[Array, "*n"]


@register_world
class Chain(World):
    """A walk from position 0 to position 4, where the episode truly ends.

    Action 1 goes right, action 0 left (at position 0 it stays). A step brings -0.1, and arriving
    1 + s on top, for a client of shift s. Observations are one-hot positions. Going right all
    along returns 0.6 + s, which is optimal for s > -1.
    """

    name: ClassVar[str] = "probe-chain"
    summary: ClassVar[str] = "a short walk with a true end, whose values are known"
    observation_size: ClassVar[int] = CHAIN_LENGTH + 1
    actions: ClassVar[Discrete] = Discrete(2)
    horizon: ClassVar[int] = 200
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("step_reward", -0.1, help="what each step brings"),
        Parameter("end_reward", 1.0, help="what arriving at the end brings on top"),
    )
    params: ClassVar[type] = ChainParams

    spread: float = setting(0.0, _SPREAD_HELP, low=0.0)

    def default_rows(self, n: int) -> Rows:
        """Return the rewards of n clients."""
        shifts = _shifts(n, self.spread)
        return {
            "step_reward": np.asarray(jnp.full_like(shifts, -0.1)),
            "end_reward": np.asarray(1.0 + shifts),
        }

    def reset(
        self, params: ChainParams, key: PRNGKeyArray
    ) -> tuple[Int[Array, ""], Float[Array, " o"]]:
        """Start at position 0."""
        position = jnp.zeros((), int)
        return position, self._observe(params, position)

    def step(
        self, params: ChainParams, state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray
    ) -> Transition:
        """Move one position further or back; the end is not left, and gives nothing more."""
        over = state == CHAIN_LENGTH
        moved = jnp.clip(state + 2 * action - 1, 0, CHAIN_LENGTH).astype(state.dtype)
        position = jnp.where(over, state, moved)
        arrived = position == CHAIN_LENGTH
        reward = params.step_reward + jnp.where(arrived, params.end_reward, 0.0)
        return Transition(
            position,
            self._observe(params, position),
            jnp.where(over, 0.0, reward),
            arrived,
        )

    @staticmethod
    def optimal_return(params: ChainParams, discount: float = 1.0) -> Float[np.ndarray, "*n"]:
        """Return the return of going right all along from position 0."""
        step, end = np.asarray(params.step_reward), np.asarray(params.end_reward)
        steps = sum(discount**t for t in range(CHAIN_LENGTH))
        return np.asarray(step * steps + end * discount ** (CHAIN_LENGTH - 1))

    @staticmethod
    def uniform_values(params: ChainParams, discount: float = 1.0) -> Float[np.ndarray, " o"]:
        """Return the values of all positions when both actions are equally likely, without
        truncation.

        Args:
            params: one client's params (not stacked).
            discount: γ.

        Returns:
            V(0) .. V(4); the last is 0, as nothing follows the end.

        Example:
            >>> params = ChainParams(jnp.asarray(-1.0), jnp.asarray(0.0))
            >>> Chain.uniform_values(params).round(6).tolist()  # minus the steps to the end
            [-20.0, -18.0, -14.0, -8.0, 0.0]
        """
        n = CHAIN_LENGTH
        transition = np.zeros((n, n + 1))
        for i in range(n):
            transition[i, max(i - 1, 0)] += 0.5
            transition[i, i + 1] += 0.5
        reward = float(params.step_reward) + transition[:, n] * float(params.end_reward)
        values = np.linalg.solve(np.eye(n) - discount * transition[:, :n], reward)
        return np.append(values, 0.0)

    @staticmethod
    def _observe(params: ChainParams, position: Int[Array, ""]) -> Float[Array, " o"]:
        return jax.nn.one_hot(position, CHAIN_LENGTH + 1, dtype=params.step_reward.dtype)
