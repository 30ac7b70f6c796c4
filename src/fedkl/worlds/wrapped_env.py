"""Worlds that take their spaces and time limit from an environment of another library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.io import strict_toml
from fedkl.simulators.spaces import Box, Numbers
from fedkl.worlds.base import Continuous, Discrete, HostedWorld

LONGEST = 1_000_000
"""Steps that an episode may have."""


@runtime_checkable
class Facts(Protocol):
    """Spaces and time limit of an environment, found by making it once."""

    @property
    def observation_size(self) -> int:
        """Numbers in an observation, flattened."""

    @property
    def actions(self) -> Box | Numbers:
        """The action space."""

    @property
    def limit(self) -> int | None:
        """Steps in an episode, if the environment says."""


class WrappedEnv(HostedWorld):
    """A world whose spaces and time limit are what an environment says."""

    horizon: int = setting(
        0,
        "steps in an episode; 0: the environment's own limit",
        low=0,
        high=LONGEST,
        static=True,
    )
    arguments: tuple[str, ...] = setting(
        (), "of what makes the environment, each as name=value", static=True
    )
    timeout: float = setting(
        60.0,
        "seconds for every 1000 steps, after which they count as lost and their process is "
        "replaced",
        above=0,
        static=True,
    )

    def __post_init__(self) -> None:
        """Look up the environment, and its time limit if no other is given."""
        limit = self.facts.limit
        if self.horizon:
            return
        if limit is None or not 0 < limit <= LONGEST:
            raise UserError(
                f"world.horizon must say how many steps an episode of {self.called} has: the "
                "environment sets no limit"
            )
        self.horizon = limit

    @property
    @abstractmethod
    def called(self) -> str:
        """The environment, as the config has it."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """Spaces and time limit of the environment."""

    @property
    def observation_size(self) -> int:
        """Of the environment's space, flattened."""
        return self.facts.observation_size

    @property
    def actions(self) -> Continuous | Discrete:
        """Of the environment's space."""
        actions = self.actuators
        kind = Discrete if isinstance(actions, Numbers) else Continuous
        return kind(actions.size)

    @property
    def actuators(self) -> Box | Numbers:
        """The environment's own."""
        return self.facts.actions

    @property
    def patience(self) -> float:
        """The timeout, in proportion for longer episodes."""
        return self.timeout * max(1.0, self.horizon / 1000)


def read_arguments(entries: Sequence[str], where: str) -> dict[str, Any]:
    """Read names and values; a value is TOML, or else a plain string.

    Args:
        entries: each of the form `name=value`.
        where: the setting that they come from, for messages.

    Raises:
        UserError: an entry is not of that form, or a name is there twice.

    Example:
        >>> read_arguments(["N=5", "mode=fast"], "world.arguments")
        {'N': 5, 'mode': 'fast'}
    """
    result: dict[str, Any] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise UserError(
                f"{where} must be a list of name=value, and '{entry}' is not of that form"
            )
        if name in result:
            raise UserError(f"{where} gives {name} twice")
        try:
            result[name] = strict_toml.parse(f"value = {value}")["value"]
        except ValueError:
            result[name] = value.strip()
    return result
