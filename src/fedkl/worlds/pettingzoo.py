"""Any environment of PettingZoo whose agents act at once and are of one kind, as a shared world.

`fedkl.simulators.pettingzoo` has the simulator, which needs PettingZoo; it is imported when such a
world is made.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar

from fedkl.core.errors import MissingPackageError
from fedkl.core.plugins import loaded_plugins
from fedkl.core.settings import setting
from fedkl.simulators.base import Recipe
from fedkl.worlds.base import SharedWorld, register_world
from fedkl.worlds.wrapped_env import WrappedEnv, read_arguments

if TYPE_CHECKING:
    from fedkl.simulators.pettingzoo import PettingZooFacts


@register_world
class PettingZoo(WrappedEnv, SharedWorld):
    """A module's `parallel_env`; every agent is a client, in the order of `possible_agents`.

    Continuous actions lie in [-1, 1], which are the environment's own limits. An agent that is gone
    waits until the episode is over for all.
    """

    name: ClassVar[str] = "pettingzoo"
    summary: ClassVar[str] = "any parallel environment of PettingZoo (pettingzoo:MODULE)"

    module: str = setting(
        "mpe2.simple_spread_v3", "the module that has the environment's parallel_env", static=True
    )
    reuse: bool = setting(
        False,
        "use an environment again; only right if an episode leaves nothing behind in it (false: a "
        "new one for every column of episodes)",
        static=True,
    )

    @property
    def title(self) -> str:
        """As a command names it."""
        return f"pettingzoo:{self.module}"

    @property
    def called(self) -> str:
        """The environment's module."""
        return self.module

    @property
    def agents(self) -> int:
        """All that may take part."""
        return self.facts.agents

    @property
    def truncates(self) -> bool:
        """PettingZoo's environments keep their time limits themselves."""
        return True

    def simulator(self) -> Recipe:
        arguments = read_arguments(self.arguments, "world.arguments")
        return Recipe(
            "fedkl.simulators.pettingzoo:ParallelEnvironment",
            {"module": self.module, "arguments": arguments},
            fresh=not self.reuse,
            plugins=loaded_plugins(),
        )

    @property
    def facts(self) -> PettingZooFacts:
        """Spaces, limit and agents of the environment."""
        return _examined(self.module, self.arguments)


@cache
def _examined(module: str, arguments: tuple[str, ...]) -> PettingZooFacts:
    try:
        from fedkl.simulators.pettingzoo import examine
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise MissingPackageError("the world pettingzoo needs PettingZoo", "pettingzoo") from error
    return examine(module, read_arguments(arguments, "world.arguments"))
