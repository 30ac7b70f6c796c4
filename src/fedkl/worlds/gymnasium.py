"""Any environment of Gymnasium as a world: each client has one of its own, on the host.

`fedkl.simulators.gymnasium` has the simulator, which needs Gymnasium; it is imported when such a
world is made.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedkl.errors import UserError
from fedkl.plugins import loaded_plugins
from fedkl.settings import setting
from fedkl.simulators.arguments import read_arguments
from fedkl.simulators.base import Recipe
from fedkl.simulators.gymnasium.quantities import RAW
from fedkl.worlds.base import Continuous, Discrete, SoloWorld, register_world
from fedkl.worlds.words import INITIAL_STATE, Word, distortions

if TYPE_CHECKING:
    from fedkl.simulators.gymnasium.simulation import Facts

LONGEST = 1_000_000
"""Steps that an episode may have."""


@register_world
class Gymnasium(SoloWorld):
    """An environment by its id; observations, actions and time limit are what it says.

    Continuous actions lie in [-1, 1], which are the environment's own limits. What may differ
    between clients depends on the environment.
    """

    name: ClassVar[str] = "gymnasium"
    summary: ClassVar[str] = "any environment of Gymnasium, by its id (gym:ENV_ID)"

    id: str = setting("CartPole-v1", "the environment, as Gymnasium registered it", static=True)
    horizon: int = setting(
        0,
        "steps in an episode; 0: the environment's own time limit",
        low=0,
        high=LONGEST,
        static=True,
    )
    arguments: tuple[str, ...] = setting(
        (), "of the environment's constructor, each as name=value", static=True
    )
    reuse: bool = setting(
        False,
        "use an environment again that is not one of Gymnasium's own; only right if an episode "
        "leaves nothing behind in it (false: a new one for every few episodes)",
        static=True,
    )
    timeout: float = setting(
        60.0,
        "seconds for every 1000 steps, after which they count as lost and their process is "
        "replaced",
        above=0,
        static=True,
    )

    def __post_init__(self) -> None:
        """Looks the environment up, and its time limit if no other is given."""
        limit = self._facts.limit
        if self.horizon:
            return
        if limit is None or not 0 < limit <= LONGEST:
            raise UserError(
                f"world.horizon must say how many steps an episode of {self.id} has: Gymnasium "
                "sets no limit"
            )
        self.horizon = limit

    @property
    def observation_size(self) -> int:
        """Of the environment's space, flattened."""
        return self._facts.observation_size

    @property
    def actions(self) -> Continuous | Discrete:
        """Of the environment's space."""
        size = self._facts.action_size
        return Discrete(size) if self._facts.discrete else Continuous(size)

    @property
    def truncates(self) -> bool:
        """Gymnasium's own environments leave that to a wrapper, which is left out."""
        return not self._facts.clean

    @property
    def patience(self) -> float:
        """The timeout, in proportion for longer episodes."""
        return self.timeout * max(1.0, self.horizon / 1000)

    @property
    def words(self) -> tuple[Word, ...]:
        """Those of the environment, raw names that the table has, delay, offset and noise."""
        found = self._facts.words
        own = [Word(name, q.nominal, q.low, q.high, q.help, q.whole) for name, q in found.items()]
        if {"initial_low", "initial_high"} <= found.keys():
            low, high = (np.asarray(found[f"initial_{end}"].nominal) for end in ("low", "high"))
            own += [INITIAL_STATE] if (low < high).all() else []
        return (*own, *distortions(None if self._facts.discrete else self._facts.action_size))

    def simulator(self) -> Recipe:
        """An `Environment`."""
        clean = self._facts.clean
        return Recipe(
            "fedkl.simulators.gymnasium.simulation:Environment",
            {"id": self.id, "arguments": read_arguments(self.arguments, "world.arguments")},
            fresh=not (clean or self.reuse),
            plugins=() if clean else loaded_plugins(),
        )

    @property
    def _facts(self) -> Facts:
        raw = tuple(name for name, _ in self.differences.given if name.startswith(RAW))
        return _examined(self.id, self.arguments, raw)


@cache
def _examined(id: str, arguments: tuple[str, ...], raw: tuple[str, ...]) -> Facts:
    try:
        from fedkl.simulators.gymnasium.simulation import examine
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise UserError(
            "the world gymnasium needs Gymnasium; install it with `pip install 'fedkl[gymnasium]'`"
        ) from error
    return examine(id, read_arguments(arguments, "world.arguments"), raw)
