"""What a world is: how an episode goes, and a row of numbers for each client.

Heterogeneity is data. What makes client n different is row n of the stacked params that `clients`
returns, and nothing else in fedkl knows about heterogeneity. A world lists its words, what may
differ, and a config says how they are drawn (`fedkl.worlds.heterogeneous`).

A `World` is written in JAX: two pure functions that take a client's row. A `HostedWorld` is a
simulator on the host: either every client has one of its own, which takes its row (`SoloWorld`), or
all clients live in the same one, and their place in it is what differs (`SharedWorld`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt8

from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.simulators.base import Recipe
from fedkl.simulators.spaces import Box, Numbers
from fedkl.worlds.heterogeneous import Family, Named, Rows, alike
from fedkl.worlds.parameters import Word, distortions

WORLDS = Registry("world")
register_world = WORLDS.register
"""Adds a world under its `name`, for configs to ask for; decorates the class."""


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


class Drawable(Named):
    """What may be drawn; most worlds cannot."""

    @property
    def frames_per_second(self) -> float:
        """Steps shown in a second of a video."""
        return 10.0

    @property
    def playback(self) -> float | None:
        """How many times as fast as it happens a video shows it; None where steps have no time."""
        return None

    @property
    def legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        """What the colours of a picture mean, where the picture itself does not say so."""
        return ()

    def artist(self, params: PyTree) -> Artist:
        """Who draws this world.

        Args:
            params: a client's row of the world's params (None in a shared world).

        Raises:
            UserError: it cannot be drawn, or not here.
        """
        can = [name for name in WORLDS if WORLDS[name].artist is not Drawable.artist]
        raise UserError(f"the world {self.title} cannot be drawn; those that can: {', '.join(can)}")


class Spaces(eqx.Module):
    """What policies must know of a world: variables of a class, settings, or properties."""

    @property
    @abstractmethod
    def observation_size(self) -> int:
        """How many numbers an observation has."""

    @property
    @abstractmethod
    def actions(self) -> Continuous | Discrete:
        """What an action is."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Steps after which an episode is cut off."""

    @property
    def actuators(self) -> Box | Numbers:
        """Actions as the environment that this world stands for takes them; a policy that was
        trained here gives them to whoever acts with it. By default they are the world's own."""
        if isinstance(self.actions, Discrete):
            return Numbers(self.actions.number)
        return Box.unlimited(self.actions.size)


class World(Drawable, Spaces, Family):
    """A family of worlds in JAX that share observations, actions and code.

    The dataclass fields are the world's settings (see `fedkl.setting`); they appear in a
    config as `world.<field>`. Its `words` are what may differ between clients. `reset` and `step`
    describe one episode of one client and are vmapped by the trainer. Reaching `horizon` is a
    truncation and is the trainer's business; a world only reports true terminations.
    """

    summary: ClassVar[str]
    params: ClassVar[type] = dict
    """Makes a client's params of its words, which it takes by name."""

    @property
    def terminates(self) -> bool:
        """Whether episodes can truly end before the horizon."""
        return True

    @property
    def vocabulary(self) -> tuple[Word, ...]:
        """The world's own words, and those that the wrapper `Distorted` gives to any world."""
        size = self.actions.size if isinstance(self.actions, Continuous) else None
        own = {word.name for word in self.words}
        return (*self.words, *(word for word in distortions(size) if word.name not in own))

    def alike(self, n: int) -> Rows:
        """What the words are for n clients where a config is silent: nominal."""
        return alike(self.words, n, jnp.result_type(float))

    def clients(self, n: int, key: PRNGKeyArray) -> PyTree:
        """The params of n clients, stacked along the first axis of every leaf."""
        rows = self.drawn(self.words, n, key, jnp.result_type(float))
        return self.params(**{k: jnp.asarray(row) for k, row in (self.alike(n) | rows).items()})

    @abstractmethod
    def reset(self, params: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Float[Array, " o"]]:
        """The first state and observation of an episode."""

    @abstractmethod
    def step(self, params: PyTree, state: PyTree, action: Any, key: PRNGKeyArray) -> Transition:
        """The state after `action`, with the reward for it."""


class HostedWorld(Drawable, Spaces):
    """A world whose simulator runs on the host, in processes of its own, which make it by a recipe.

    The dataclass fields are its settings. Derive from `SharedWorld` or `SoloWorld`, which say who
    is in a simulation.
    """

    summary: ClassVar[str]

    @property
    @abstractmethod
    def patience(self) -> float:
        """Seconds after which an episode, or a column of them, counts as lost."""

    @property
    def truncates(self) -> bool:
        """Whether its simulator may cut episodes off by itself (`Step.truncated`)."""
        return False

    @abstractmethod
    def simulator(self) -> Recipe:
        """How a process makes the simulator (see `fedkl.simulators.base.Simulator`).

        Raises:
            UserError: it cannot be made here, because something is missing or wrong.
        """


class SharedWorld(HostedWorld):
    """One simulation in which every client is an agent.

    What makes clients differ is their place in the simulation.
    """

    @property
    @abstractmethod
    def agents(self) -> int:
        """How many clients the simulation has."""


class SoloWorld(HostedWorld, Family):
    """Every client has a simulation of its own, with one agent.

    What makes clients differ is their row of the params, which the simulator's `reset` is given.
    """

    def clients(self, n: int, key: PRNGKeyArray) -> PyTree:
        """The params of n clients, stacked along the first axis of every leaf.

        Where nobody says otherwise these are the words that a config names, in a dict, in double
        precision. Leaves are arrays of NumPy or JAX; a row reaches the simulator as NumPy's. It is
        pickled on the way, so its containers are best dicts or tuples: the class of a module that
        imports JAX would make the simulator's process import it, too.
        """
        return self.drawn(self.words, n, key, np.float64)


AnyWorld = World | HostedWorld
