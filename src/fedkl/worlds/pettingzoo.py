"""Any environment of PettingZoo whose agents act at once and are alike, as a shared world.

`fedkl.simulators.pettingzoo` has the simulator, which needs PettingZoo; it is imported when such a
world is made.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar

from fedkl.errors import UserError
from fedkl.plugins import loaded_plugins
from fedkl.settings import setting
from fedkl.simulators.arguments import read_arguments
from fedkl.simulators.base import Recipe
from fedkl.worlds.base import Continuous, Discrete, SharedWorld, register_world

if TYPE_CHECKING:
    from fedkl.simulators.pettingzoo import Facts


@register_world
class PettingZoo(SharedWorld):
    """A module's `parallel_env`; every agent is a client, in the order of `possible_agents`.

    Continuous actions lie in [-1, 1], which are the environment's own limits. An agent that is gone
    waits until the episode is over for all.
    """

    name: ClassVar[str] = "pettingzoo"
    summary: ClassVar[str] = "any parallel environment of PettingZoo (pettingzoo:MODULE)"

    module: str = setting(
        "mpe2.simple_spread_v3", "the module that has the environment's parallel_env", static=True
    )
    horizon: int = setting(
        0,
        "steps in an episode; 0: the environment's own max_cycles",
        low=0,
        high=1_000_000,
        static=True,
    )
    arguments: tuple[str, ...] = setting((), "of parallel_env, each as name=value", static=True)
    reuse: bool = setting(
        False,
        "use an environment again; only right if an episode leaves nothing behind in it (false: a "
        "new one for every column of episodes)",
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
        if limit is None or limit < 1:
            raise UserError(
                f"world.horizon must say how many steps an episode of {self.module} has: it has no "
                "max_cycles"
            )
        self.horizon = limit

    @property
    def agents(self) -> int:
        """All that may take part."""
        return self._facts.agents

    @property
    def observation_size(self) -> int:
        """Of the agents' space, flattened."""
        return self._facts.observation_size

    @property
    def actions(self) -> Continuous | Discrete:
        """Of the agents' space."""
        size = self._facts.action_size
        return Discrete(size) if self._facts.discrete else Continuous(size)

    @property
    def truncates(self) -> bool:
        """PettingZoo's environments keep their time limits themselves."""
        return True

    @property
    def patience(self) -> float:
        """The timeout, in proportion for longer episodes."""
        return self.timeout * max(1.0, self.horizon / 1000)

    def simulator(self) -> Recipe:
        """A `ParallelEnvironment`."""
        arguments = read_arguments(self.arguments, "world.arguments")
        return Recipe(
            "fedkl.simulators.pettingzoo:ParallelEnvironment",
            {"module": self.module, "arguments": arguments},
            fresh=not self.reuse,
            plugins=loaded_plugins(),
        )

    @property
    def _facts(self) -> Facts:
        return _examined(self.module, self.arguments)


@cache
def _examined(module: str, arguments: tuple[str, ...]) -> Facts:
    try:
        from fedkl.simulators.pettingzoo import examine
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise UserError(
            "the world pettingzoo needs PettingZoo; install it with "
            "`pip install 'fedkl[pettingzoo]'`"
        ) from error
    return examine(module, read_arguments(arguments, "world.arguments"))
