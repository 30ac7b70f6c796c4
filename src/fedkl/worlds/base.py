"""What a world is: two pure functions, and a row of numbers for each client.

Heterogeneity is data. `reset` and `step` take `params`; what makes client n different is row n of
the stacked params that `clients` returns, and nothing else in fedkl knows about heterogeneity.

A `SharedWorld` is the other kind: all clients live in one simulation, which runs on the host.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt8

from fedkl.errors import UserError
from fedkl.registry import Registry
from fedkl.simulators.base import Recipe

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


Artist = Callable[[PyTree, int, float], UInt8[np.ndarray, "h w 3"]]
"""Draws a moment of an episode, given its state, the steps so far and the rewards so far."""


class Drawable(eqx.Module):
    """What may be drawn; most worlds cannot."""

    name: ClassVar[str]
    frames_per_second: ClassVar[float] = 10.0
    """Steps shown in a second of a video."""

    def artist(self, params: PyTree) -> Artist:
        """Who draws this world.

        Args:
            params: a client's row of the world's params (None in a shared world).

        Raises:
            UserError: it cannot be drawn, or not here.
        """
        raise UserError(f"the world {self.name} cannot be drawn: it has no `artist`")


class World(Drawable):
    """One family of worlds that share observations, actions and code.

    The dataclass fields are the world's settings (see `fedkl.settings.setting`); they appear in a
    config as `world.<field>`. `reset` and `step` describe one episode of one client and are
    vmapped by the trainer. Reaching `horizon` is a truncation and is the trainer's business; a
    world only reports true terminations.
    """

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


class SharedWorld(Drawable):
    """One simulation on the host in which every client is an agent.

    The dataclass fields are its settings. The simulator runs in processes of its own, which make
    it by the recipe; what makes clients differ is their place in the simulation.
    """

    summary: ClassVar[str]
    observation_size: ClassVar[int]
    actions: ClassVar[Continuous]

    horizon: eqx.AbstractVar[int]

    @property
    @abstractmethod
    def agents(self) -> int:
        """How many clients the simulation has."""

    @property
    @abstractmethod
    def patience(self) -> float:
        """Seconds after which an episode counts as lost."""

    @abstractmethod
    def simulator(self) -> Recipe:
        """How a process makes the simulator (see `fedkl.simulators.base.Simulator`).

        Raises:
            UserError: it cannot be made here, because something is missing or wrong.
        """


AnyWorld = World | SharedWorld
