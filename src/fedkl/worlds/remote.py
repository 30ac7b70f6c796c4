"""A world that only the clients have: the server knows what a policy sees and does there."""

from __future__ import annotations

from typing import ClassVar

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.simulators.base import Recipe
from fedkl.worlds.base import Continuous, Discrete, SoloWorld, register_world
from fedkl.worlds.parameters import Parameter


@register_world
class Remote(SoloWorld):
    """Sizes and nothing else; each client has a world of its own that fits them."""

    name: ClassVar[str] = "remote"
    summary: ClassVar[str] = "worlds that only the clients of a network have"
    patience: ClassVar[float] = 1.0
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    observation_size: int = setting(
        1, "numbers in an observation", low=1, high=1_000_000, static=True
    )
    action_size: int = setting(
        1,
        "numbers in an action; if actions are discrete, how many there are",
        low=1,
        high=1_000_000,
        static=True,
    )
    discrete: bool = setting(False, "whether actions are numbered", static=True)
    horizon: int = setting(
        1000, "steps in an episode, at the most", low=1, high=1_000_000, static=True
    )

    @property
    def actions(self) -> Continuous | Discrete:
        """As the settings say."""
        return Discrete(self.action_size) if self.discrete else Continuous(self.action_size)

    def simulator(self) -> Recipe:
        """Refuse: there is no simulator here.

        Raises:
            UserError: always.
        """
        raise UserError(
            "the world remote is only on the clients of a network: nothing can be simulated here"
        )
