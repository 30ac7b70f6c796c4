"""What a simulator is: one world in which several agents act at once, stepped on the host."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float


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


class Outcome(NamedTuple):
    """What a step leads to."""

    observation: Float[np.ndarray, "n o"]
    reward: Float[np.ndarray, " n"] | float
    """Of each agent, or one that all share."""
    terminated: bool


class SimulatorError(Exception):
    """The simulator came to harm through no fault of its user: a fresh one may do better."""


class ProcessLostError(SimulatorError):
    """The simulator's process died, or hangs: that is nothing that the episode did."""


class Simulator(Protocol):
    """A world on the host. An episode is a pure function of its seed and of the actions."""

    agents: int

    def reset(self, seed: Seed) -> Float[np.ndarray, "n o"]:
        """Starts an episode, and returns every agent's first observation."""

    def step(self, actions: Float[np.ndarray, "n a"]) -> Outcome:
        """Every agent acts."""

    def picture(self) -> Float[np.ndarray, " p"]:
        """The numbers that a picture of this moment is drawn from."""


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
