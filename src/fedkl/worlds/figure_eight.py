"""The figure-eight road as a world: seven autonomous vehicles, each its own client, one SUMO.

`fedkl.simulators.figure_eight` has the road and the vehicles. `parallel_env` is the same world for
users of PettingZoo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import PyTree, UInt8

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.core.settings import build, setting
from fedkl.simulators.base import Recipe
from fedkl.simulators.figure_eight import network as networks
from fedkl.simulators.figure_eight import placement as placements
from fedkl.simulators.figure_eight.simulation import OBSERVATIONS, STEP, checked_network
from fedkl.worlds.base import Continuous, Renderer, SharedWorld, register_world

if TYPE_CHECKING:
    from fedkl.simulators.figure_eight.environment import FigureEightEnv


@register_world
class FigureEight(SharedWorld):
    """The paper's Experiment 2: isolated vehicles among human drivers.

    An agent observes speed and position of the vehicle ahead, of itself and of the vehicle behind,
    and chooses its acceleration. All share one reward: how near all vehicles are to 20 m/s.
    """

    name: ClassVar[str] = "figure-eight"
    summary: ClassVar[str] = "autonomous vehicles among human drivers on one crossing road (SUMO)"
    observation_size: ClassVar[int] = OBSERVATIONS
    actions: ClassVar[Continuous] = Continuous(1)
    # Three times as fast as it happens: an episode is two and a half minutes long.
    frames_per_second: ClassVar[float] = 30.0
    playback: ClassVar[float] = 3.0

    placement: str = setting(
        placements.ALTERNATING,
        "who drives the 14 vehicles, from back to front: h a human, r an autonomous vehicle",
        static=True,
    )
    horizon: int = setting(1500, "steps of 0.1 s in an episode", low=1, high=1_000_000, static=True)
    network: str = setting(
        "",
        "a SUMO network file in place of the generated road; its edges have the same names",
        path=True,
        static=True,
    )
    timeout: float = setting(
        60.0,
        "seconds for every 1500 steps of an episode, after which it counts as lost and its process "
        "is replaced",
        above=0,
        static=True,
    )

    def __check_init__(self) -> None:
        placements.check(self.placement)

    @property
    def agents(self) -> int:
        """The autonomous vehicles."""
        return len(placements.autonomous(self.placement))

    @property
    def patience(self) -> float:
        """The timeout, in proportion for longer episodes."""
        return self.timeout * max(1.0, self.horizon / 1500)

    def simulator(self) -> Recipe:
        network = checked_network(self.network)
        return Recipe(
            "fedkl.simulators.figure_eight.simulation:Simulation",
            {"placement": self.placement, "network": str(network), "horizon": self.horizon},
        )

    def renderer(self, params: PyTree) -> Renderer:
        """Return a function that draws the numbers of `Simulation.picture`."""
        from fedkl.simulators.figure_eight.renderer import FigureEightPicture

        picture = FigureEightPicture(networks.read(checked_network(self.network)), self.placement)

        def draw(moment: PyTree, step: int, total: float) -> UInt8[np.ndarray, "h w 3"]:
            x, speeds = np.split(np.asarray(moment), 2)
            caption = f"{step * STEP:.1f} s, mean speed {speeds.mean():.1f} m/s"
            return picture.draw(x, speeds, caption)

        return draw


def parallel_env(**settings: Any) -> FigureEightEnv:
    """Make the figure-eight as a PettingZoo parallel environment.

    Args:
        settings: `placement`, `horizon`, `network`, and `render_mode` (None or "rgb_array").

    Raises:
        UserError: a setting is wrong, or PettingZoo or SUMO is missing.
    """
    try:
        from fedkl.simulators.figure_eight.environment import FigureEightEnv
    except ImportError as error:
        raise MissingPackageError("parallel_env needs PettingZoo", "sumo") from error
    if unknown := settings.keys() - {"placement", "horizon", "network", "render_mode"}:
        raise UserError(f"parallel_env has no setting {min(unknown)}")
    render_mode = settings.pop("render_mode", None)
    if render_mode not in (None, "rgb_array"):
        raise UserError(f"render_mode must be None or 'rgb_array', not {render_mode!r}")
    world = build(FigureEight, settings, "world")
    return FigureEightEnv(world.placement, world.horizon, world.network, render_mode)
