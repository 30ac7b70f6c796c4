"""The interface of a world: an episode's functions, and a row of numbers for each client.

Heterogeneity is data. What makes client n different is row n of the stacked params that `clients`
returns, and nothing else in fedkl knows about heterogeneity. A world lists its parameters, and a
config says how they are drawn (`fedkl.worlds.heterogeneous`).

A `World` is written in JAX: two pure functions that take a client's row. A `HostedWorld` is a
simulator on the host: either every client has one of its own, which takes its row (`SoloWorld`), or
all clients live in the same one, and their place in it is what differs (`SharedWorld`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt8

from fedkl.core.errors import UserError
from fedkl.core.own_code import explained, shortened
from fedkl.core.registry import Registry
from fedkl.simulators.base import Recipe
from fedkl.simulators.spaces import Box, Numbers
from fedkl.worlds.heterogeneous import HeterogeneousWorld, Named, Rows, identical
from fedkl.worlds.parameters import Parameter, distortions

WORLDS = Registry("world", "World", "SoloWorld", "SharedWorld")
register_world = WORLDS.register
"""Add a world under its `name`, for configs to ask for; decorates the class."""


class Continuous(NamedTuple):
    """Actions are vectors of `size` real numbers."""

    size: int


class Discrete(NamedTuple):
    """Actions are integers 0 .. number - 1."""

    number: int


class Transition(NamedTuple):
    """The result of a step."""

    state: PyTree
    observation: Float[Array, " o"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


Renderer = Callable[[PyTree, int, float], UInt8[np.ndarray, "h w 3"]]
"""A function that draws a moment of an episode: its state, the steps and the rewards so far."""


class AnyWorld(Named):
    """The base of all worlds: its spaces, who is in a simulation, and how it is drawn."""

    summary: ClassVar[str]

    @property
    @abstractmethod
    def observation_size(self) -> int:
        """The number of entries of an observation."""

    @property
    @abstractmethod
    def actions(self) -> Continuous | Discrete:
        """The action space."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Steps after which an episode is cut off."""

    @property
    def actuators(self) -> Box | Numbers:
        """The action space of the environment that this world stands for, in which a trained policy
        acts; by default the world's own."""
        if isinstance(self.actions, Discrete):
            return Numbers(self.actions.number)
        return Box.unlimited(self.actions.size)

    @property
    def is_shared(self) -> bool:
        """True if its clients are agents of one simulation."""
        return False

    @property
    def is_hosted(self) -> bool:
        """True if a simulator on the host steps it, and not JAX."""
        return False

    @abstractmethod
    def clients(self, n: int, key: PRNGKeyArray) -> PyTree:
        """Return the params of n clients, stacked along the first axis of every leaf."""

    @property
    def frames_per_second(self) -> float:
        """Steps shown in a second of a video."""
        return 10.0

    @property
    def playback(self) -> float | None:
        """Speed of a video relative to real time; None if steps have no duration."""
        return None

    @property
    def legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
        """Labels of the colours that a picture does not explain itself."""
        return ()

    def renderer(self, params: PyTree) -> Renderer:
        """Return the function that draws this world.

        Args:
            params: a client's row of the world's params (None in a shared world).

        Raises:
            UserError: it cannot be drawn, or not here.
        """
        can = [name for name in WORLDS if WORLDS[name].renderer is not AnyWorld.renderer]
        raise UserError(f"the world {self.title} cannot be drawn; those that can: {', '.join(can)}")


def require_spaces(world: AnyWorld) -> None:
    """Check what a world says of its spaces.

    Raises:
        UserError: it is not what a world may say.
    """
    said = f"the world {world.name} is described wrongly: "
    for name in ("observation_size", "horizon"):
        value = getattr(world, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise UserError(f"{said}`{name}` must be a whole number from 1 on, not {value!r}")
    actions = world.actions
    if not isinstance(actions, Continuous | Discrete) or not actions[0] >= 1:
        raise UserError(
            f"{said}`actions` must be fedkl.Continuous(size) or fedkl.Discrete(number), with at "
            f"least 1, not {actions!r}"
        )


class World(AnyWorld, HeterogeneousWorld):
    """A family of worlds in JAX that share observations, actions and code.

    The dataclass fields are the world's settings (see `fedkl.setting`); they appear in a
    config as `world.<field>`. Its `parameters` may differ between clients. `reset` and `step`
    describe one episode of one client and are vmapped by the trainer. Reaching `horizon` is a
    truncation and is the trainer's business; a world only reports true terminations.
    """

    params: ClassVar[type] = dict
    """Makes a client's params of its parameters, which it takes by name."""

    @property
    def terminates(self) -> bool:
        """True if episodes can truly end before the horizon."""
        return True

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """The world's own parameters, and those that the wrapper `Distorted` gives to any world."""
        size = self.actions.size if isinstance(self.actions, Continuous) else None
        own = {parameter.name for parameter in self.parameters}
        return (
            *self.parameters,
            *(parameter for parameter in distortions(size) if parameter.name not in own),
        )

    def default_rows(self, n: int) -> Rows:
        """Return the parameters of n clients where the config is silent: nominal."""
        return identical(self.parameters, n, jnp.result_type(float))

    def clients(self, n: int, key: PRNGKeyArray) -> PyTree:
        drawn = self.drawn(self.parameters, n, key, jnp.result_type(float))
        rows = self.default_rows(n) | drawn
        try:
            return self.params(**{name: jnp.asarray(row) for name, row in rows.items()})
        except TypeError as error:
            raise explained(
                f"the world {self.name} cannot make the params of its clients: `params` must take "
                f"its parameters by name ({', '.join(rows) or 'none'}): {shortened(error)}",
                error,
            ) from error

    @abstractmethod
    def reset(self, params: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Float[Array, " o"]]:
        """Return the first state and observation of an episode."""

    @abstractmethod
    def step(self, params: PyTree, state: PyTree, action: Any, key: PRNGKeyArray) -> Transition:
        """Return the state after `action`, with the reward for it."""


class HostedWorld(AnyWorld):
    """A world whose simulator runs on the host, in processes of its own, which make it by a recipe.

    The dataclass fields are its settings. Derive from `SharedWorld` or `SoloWorld`, which say who
    is in a simulation.
    """

    @property
    def is_hosted(self) -> bool:
        return True

    @property
    @abstractmethod
    def patience(self) -> float:
        """Seconds after which an episode, or a column of them, counts as lost."""

    @property
    def truncates(self) -> bool:
        """True if its simulator may cut episodes off by itself (`Step.truncated`)."""
        return False

    @abstractmethod
    def simulator(self) -> Recipe:
        """Return the recipe by which a process makes the simulator
        (`fedkl.simulators.base.Simulator`).

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
        """The number of clients in the simulation."""

    @property
    def is_shared(self) -> bool:
        return True

    def clients(self, n: int, key: PRNGKeyArray) -> PyTree:
        """Return no params: clients differ by their place alone."""
        return {}


class SoloWorld(HostedWorld, HeterogeneousWorld):
    """Every client has a simulation of its own, with one agent.

    What makes clients differ is their row of the params, which the simulator's `reset` is given.
    """

    def clients(self, n: int, key: PRNGKeyArray) -> PyTree:
        """Return the params of n clients, stacked along the first axis of every leaf.

        By default these are the parameters that a config names, in a dict, in double precision.
        Leaves are arrays of NumPy or JAX; a row reaches the simulator as NumPy's. It is pickled on
        the way, so its containers are best dicts or tuples: the class of a module that imports JAX
        would make the simulator's process import it, too.
        """
        return self.drawn(self.parameters, n, key, np.float64)
