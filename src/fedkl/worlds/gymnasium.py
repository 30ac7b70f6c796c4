"""Any environment of Gymnasium as a world: each client has one of its own, on the host.

`fedkl.simulators.gymnasium` has the simulator, which needs Gymnasium; it is imported when such a
world is made.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import PyTree, UInt8

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.core.plugins import loaded_plugins
from fedkl.core.settings import setting
from fedkl.simulators.base import Recipe
from fedkl.simulators.gymnasium.quantities import RAW
from fedkl.worlds.base import Continuous, Renderer, SoloWorld, register_world
from fedkl.worlds.heterogeneous import TABLE
from fedkl.worlds.parameters import INITIAL_STATE, Parameter, distortions
from fedkl.worlds.wrapped_env import WrappedEnv, read_arguments

if TYPE_CHECKING:
    from fedkl.simulators.gymnasium.simulation import GymnasiumFacts

_STANDS_FOR = {
    "make": "the argument {} of the environment's constructor",
    "attribute": "the attribute {} of the environment",
    "model": "{} of the environment's MuJoCo model",
}
"""The meaning of a raw name, by its beginning (`RAW`)."""


@register_world
class Gymnasium(WrappedEnv, SoloWorld):
    """An environment by its id; observations, actions and time limit are what it says.

    Continuous actions lie in [-1, 1], which are the environment's own limits. What may differ
    between clients depends on the environment.
    """

    name: ClassVar[str] = "gymnasium"
    summary: ClassVar[str] = "any environment of Gymnasium, by its id (gym:ENV_ID)"

    id: str = setting("CartPole-v1", "the environment, as Gymnasium registered it", static=True)
    reuse: bool = setting(
        False,
        "use an environment again that is not one of Gymnasium's own; only right if an episode "
        "leaves nothing behind in it (false: a new one for every few episodes)",
        static=True,
    )

    def __check_init__(self) -> None:
        """Refuse parameters that this environment lacks for a reason, with the reason."""
        for name, _ in self.differences.given:
            if why := self._lacks(name):
                raise UserError(f"{TABLE}.{name} is not a parameter of {self.title}: {why}")

    def _lacks(self, name: str) -> str:
        """Return why this environment lacks a parameter; empty if it has it, or the reason is
        unknown."""
        parameters, unseen = self.facts.parameters, self.facts.unseen
        if name in unseen or (unseen and name == INITIAL_STATE.name):
            return "its wrappers would not see that an episode starts elsewhere"
        kind, _, rest = name.partition(".")
        if not name.startswith(RAW) or name in parameters:
            return ""
        meant = _STANDS_FOR[kind].format(rest)
        return f"it stands for {meant}, and there is no such number to be set"

    @property
    def title(self) -> str:
        """As a command names it."""
        return f"gym:{self.id}"

    @property
    def called(self) -> str:
        """The environment's id."""
        return self.id

    @property
    def truncates(self) -> bool:
        """Gymnasium's own environments leave that to a wrapper, which is left out."""
        return not self.facts.clean

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Those of the environment, raw names that the table has, delay, offset and noise."""
        found = self.facts.parameters
        own = [
            Parameter(name, q.nominal, q.low, q.high, q.help, q.whole) for name, q in found.items()
        ]
        if {"initial_low", "initial_high"} <= found.keys():
            low, high = (np.asarray(found[f"initial_{end}"].nominal) for end in ("low", "high"))
            own += [INITIAL_STATE] if (low < high).all() else []
        size = self.actions.size if isinstance(self.actions, Continuous) else None
        return (*own, *distortions(size))

    @property
    def frames_per_second(self) -> float:
        """The environment's own, where it says one."""
        return self.facts.frames_per_second or super().frames_per_second

    def renderer(self, params: PyTree) -> Renderer:
        """Return a function that shows what the environment rendered."""
        from fedkl.simulators.gymnasium.pictures import unpacked

        def draw(moment: Any, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            return unpacked(moment)

        return draw

    def simulator(self) -> Recipe:
        return Recipe(
            "fedkl.simulators.gymnasium.simulation:Environment",
            {"id": self.id, "arguments": read_arguments(self.arguments, "world.arguments")},
            fresh=not (self.facts.clean or self.reuse),
            plugins=loaded_plugins(),
        )

    @property
    def facts(self) -> GymnasiumFacts:
        """Spaces, limit and parameters of the environment."""
        raw = tuple(name for name, _ in self.differences.given if name.startswith(RAW))
        return _examined(self.id, self.arguments, raw)


@cache
def _examined(id: str, arguments: tuple[str, ...], raw: tuple[str, ...]) -> GymnasiumFacts:
    try:
        from fedkl.simulators.gymnasium.simulation import examine
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise MissingPackageError("the world gymnasium needs Gymnasium", "gymnasium") from error
    return examine(id, read_arguments(arguments, "world.arguments"), raw)
