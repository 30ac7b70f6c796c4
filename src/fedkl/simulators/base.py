"""What a simulator is: a world on the host in which one agent or several act at once."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from fedkl.errors import UserError


class Seed(NamedTuple):
    """Where the randomness of an episode comes from: words of a key, and numbers folded into it."""

    words: tuple[int, ...]
    numbers: tuple[int, ...] = ()

    def fold(self, *numbers: int) -> Seed:
        """The seed for one of several things that share this one."""
        return Seed(self.words, (*self.numbers, *numbers))

    def generator(self) -> np.random.Generator:
        """The generator of this seed."""
        return np.random.default_rng(np.random.SeedSequence(self.words, spawn_key=self.numbers))


class Step(NamedTuple):
    """What a step leads to."""

    observation: Float[np.ndarray, "n o"]
    reward: Float[np.ndarray, " n"] | float
    """Of each agent, or one that all share."""
    terminated: bool


class SimulatorError(Exception):
    """The simulator came to harm through no fault of its user: a fresh one may do better."""


class EpisodeLostError(UserError):
    """One episode was lost again and again: there is something wrong with its simulator."""


class ProcessLostError(SimulatorError):
    """The simulator's process died, or hangs: that is nothing that the episode did."""


@runtime_checkable
class Simulator(Protocol):
    """A world on the host. An episode is a pure function of seed, params and the actions."""

    agents: int

    def reset(self, seed: Seed, params: Any = None) -> Float[np.ndarray, "n o"]:
        """Starts an episode, and returns every agent's first observation.

        Args:
            seed: of all that is random in it.
            params: what makes this client's world its own, a pytree of NumPy arrays; None in a
                world that all clients share.
        """

    def step(self, actions: Float[np.ndarray, "n a"]) -> Step:
        """Every agent acts."""

    def picture(self) -> Float[np.ndarray, " p"]:
        """The numbers that a picture of this moment is drawn from; none if there is no artist."""


class Recipe(NamedTuple):
    """How a process makes a simulator: a function that it can import, and its arguments."""

    function: str
    """As `package.module:name`."""
    arguments: dict[str, object]

    def make(self) -> Simulator:
        """The simulator."""
        module, _, name = self.function.partition(":")
        simulator: Simulator = getattr(import_module(module), name)(**self.arguments)
        return simulator


class Request(NamedTuple):
    """What is asked of a process with a simulator in it."""

    what: str
    """`open`, `episode`, `reset`, `step` or `picture`."""
    argument: Any = None


class Reply(NamedTuple):
    """What that process answers."""

    result: Any
    mistake: str | None = None
    """What the user can mend."""
    harm: str | None = None
    """What a fresh worker may do better."""
    defect: str | None = None
    """The traceback of what nobody should see."""
