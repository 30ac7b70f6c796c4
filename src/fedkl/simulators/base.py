"""The interface of a simulator: a world on the host in which one agent or several act at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from fedkl.core.errors import UserError
from fedkl.core.own_code import explained, shortened
from fedkl.core.plugins import load_plugin


class Seed(NamedTuple):
    """The source of an episode's randomness: data of a key, and numbers folded into it."""

    key_data: tuple[int, ...]
    numbers: tuple[int, ...] = ()

    def fold(self, *numbers: int) -> Seed:
        """Return the seed for one of several things that share this one."""
        return Seed(self.key_data, (*self.numbers, *numbers))

    def generator(self) -> np.random.Generator:
        """Return the generator of this seed."""
        return np.random.default_rng(np.random.SeedSequence(self.key_data, spawn_key=self.numbers))

    def number(self) -> int:
        """Return this seed as a number below 2**31, as simulators of others want it."""
        # Faster than a SeedSequence, which short episodes would notice.
        text = f"{self.key_data}{self.numbers}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big") >> 1


Flags = bool | Bool[np.ndarray, " n"]
"""Of each agent, or of all at once."""


class Step(NamedTuple):
    """The result of a step."""

    observation: Float[np.ndarray, "n o"]
    reward: Float[np.ndarray, " n"] | float
    """Of each agent, or one that all share."""
    terminated: Flags
    """True if the episode truly ended with this step: for each agent, or for all at once. What is
    said of an agent whose episode is over already counts for nothing."""
    truncated: Flags = False
    """Likewise whether a limit of the simulator's own cut it off."""


class SimulatorError(Exception):
    """The simulator failed through no fault of its user: a fresh one may do better."""


class EpisodeLostError(UserError):
    """One episode was lost again and again: there is something wrong with its simulator."""


class ProcessLostError(SimulatorError):
    """The simulator's process died, or hangs: that is nothing that the episode did."""


@runtime_checkable
class Simulator(Protocol):
    """A world on the host. An episode is a pure function of seed, params and the actions."""

    agents: int

    def reset(self, seed: Seed, params: Any = None) -> Float[np.ndarray, "n o"]:
        """Start an episode, and return every agent's first observation.

        Args:
            seed: of all that is random in it.
            params: what makes this client's world its own, a pytree of NumPy arrays; None in a
                world that all clients share.
        """

    def step(self, actions: Float[np.ndarray, "n a"] | Int[np.ndarray, " n"]) -> Step:
        """Let every agent act, by a vector or by the number of a discrete action."""

    def picture(self) -> Shaped[np.ndarray, " p"]:
        """Return the numbers that a picture of this moment is drawn from, if any; of a moment that
        has fewer than others zeros are added."""


@runtime_checkable
class Pictured(Protocol):
    """A simulator that must know beforehand that pictures of an episode are wanted."""

    def prepare_pictures(self) -> None:
        """Get ready for `picture`, before an episode starts.

        Raises:
            UserError: there are none.
        """


class Outcomes(NamedTuple):
    """Rewards and ends of a step in some columns; observations are written in place."""

    rewards: list[Any]
    """Of each of the columns, as `Step` has it."""
    ended: list[tuple[int, Flags, Flags]]
    """Columns in which an agent's episode ended: which, and terminated and truncated as in `Step`.
    In most steps there are none, and the others cost nothing."""


@runtime_checkable
class Lockstep(Protocol):
    """A simulator that can step several of its kind in one call, where that costs less."""

    def step_all(
        self,
        several: Sequence[Any],
        columns: Sequence[int],
        actions: Shaped[np.ndarray, "n c *a"],
        following: Float[np.ndarray, "n c o"],
    ) -> Outcomes:
        """Let every agent act in some columns.

        Args:
            several: the simulators of all columns.
            columns: which of them take the step.
            actions: of all columns, at least up to the last of these.
            following: where to put what is observed then, in these columns.
        """


def step_each(
    several: Sequence[Simulator],
    columns: Sequence[int],
    actions: Shaped[np.ndarray, "n c *a"],
    following: Float[np.ndarray, "n c o"],
) -> Outcomes:
    """Do as `Lockstep.step_all`, for simulators that are stepped one by one."""
    outcomes = Outcomes([], [])
    for c in columns:
        observation, reward, terminated, truncated = several[c].step(actions[:, c])
        following[:, c] = observation
        outcomes.rewards.append(reward)
        if terminated is not False or truncated is not False:
            outcomes.ended.append((c, terminated, truncated))
    return outcomes


class Recipe(NamedTuple):
    """A function that a process can import and call for a simulator, and its arguments."""

    function: str
    """As `package.module:name`."""
    arguments: dict[str, object]
    fresh: bool = False
    """True if every job gets new simulators, because an episode may leave traces in one."""
    plugins: tuple[str, ...] = ()
    """Files of users that the process runs first."""

    def make(self) -> Simulator:
        """Make the simulator."""
        for path in self.plugins:
            load_plugin(Path(path))
        module, _, name = self.function.partition(":")
        simulator: Simulator = getattr(import_module(module), name)(**self.arguments)
        return simulator


class SimulatorRequest(NamedTuple):
    """A request to a process with a simulator in it."""

    what: str
    """`open`, `job`, `reset`, `step` or `picture`."""
    argument: Any = None


class SimulatorReply(NamedTuple):
    """The answer of that process."""

    result: Any
    mistake: str | None = None
    """A mistake that the user can mend."""
    trace: str | None = None
    """The traceback, if the mistake is in the user's own code."""
    harm: str | None = None
    """A failure that a fresh worker may not have."""
    defect: str | None = None
    """The traceback of an error of ours."""


def environment_error(who: str, error: Exception, step: int) -> UserError:
    """Return an error that names an environment and the moment at which it failed.

    Args:
        who: the environment.
        error: what it raised, or what we say of what it returned.
        step: of the episode; 0: its start.
    """
    when = f"in step {step} of an episode" if step else "when it was reset"
    if isinstance(error, UserError):
        return UserError(f"{error}, {when}")
    if isinstance(error, ValueError) and "values to unpack" in str(error):
        return UserError(
            f"{who} returned another number of values than Gymnasium's do ({error}), {when}: it "
            "may be made for an older Gym"
        )
    return explained(f"{who} raised {shortened(error)}, {when}", error, installed=True)
