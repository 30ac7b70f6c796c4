"""What a world is: two pure functions, and a row of numbers for each client.

Heterogeneity is data. `reset` and `step` take `params`; what makes client n different is row n of
the stacked params that `clients` returns, and nothing else in fedkl knows about heterogeneity.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from fedkl.registry import Registry

WORLDS = Registry("world")
register_world = WORLDS.register


class Continuous(NamedTuple):
    """Actions are vectors of `size` real numbers."""

    size: int


class Discrete(NamedTuple):
    """Actions are integers 0 .. number - 1."""

    number: int


class Transition(NamedTuple):
    """What a step leads to."""

    state: PyTree
    observation: Float[Array, " o"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class World(eqx.Module):
    """One family of worlds that share observations, actions and code.

    The dataclass fields are the world's settings (see `fedkl.settings.setting`); they appear in a
    config as `world.<field>`. `reset` and `step` describe one episode of one client and are
    vmapped by the trainer. Reaching `horizon` is a truncation and is the trainer's business; a
    world only reports true terminations.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    observation_size: ClassVar[int]
    actions: ClassVar[Continuous | Discrete]
    horizon: ClassVar[int]

    @abstractmethod
    def clients(self, n: int, key: PRNGKeyArray) -> PyTree:
        """The params of n clients, stacked along the first axis of every leaf."""

    @abstractmethod
    def reset(self, params: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Float[Array, " o"]]:
        """The first state and observation of an episode."""

    @abstractmethod
    def step(self, params: PyTree, state: PyTree, action: Any, key: PRNGKeyArray) -> Transition:
        """The state after `action`, with the reward for it."""
