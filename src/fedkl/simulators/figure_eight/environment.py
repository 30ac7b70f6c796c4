"""The figure-eight as a PettingZoo parallel environment.

SUMO holds one simulation in a process, so every environment has a process of its own; any number
of them can be used side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from fedkl.simulators.base import Recipe, Seed, Step
from fedkl.simulators.figure_eight import network as networks
from fedkl.simulators.figure_eight import placement as placements
from fedkl.simulators.figure_eight.renderer import FigureEightPicture
from fedkl.simulators.figure_eight.simulation import (
    MAX_ACCELERATION,
    OBSERVATIONS,
    STEP,
    Simulation,
    checked_network,
)
from fedkl.simulators.pool import SimulatorProcess

Array = NDArray[np.float32]


class FigureEightEnv(ParallelEnv[str, Array, Array]):
    """Autonomous vehicles among human drivers; an agent is called `vehicle_` and its number.

    Observations are speed / 30 and position / loop of the vehicle ahead, of the vehicle itself and
    of the vehicle behind; actions are accelerations in [-3, 3] m/s^2. All agents get the same
    reward. A crash terminates all of them, the horizon truncates all.

    The simulator runs in a process of its own, which lives as long as the thread that made the
    environment.
    """

    metadata = {  # noqa: RUF012 (PettingZoo's own form)
        "name": "figure_eight_v0",
        "render_modes": ["rgb_array"],
        "render_fps": round(1 / STEP),
        "is_parallelizable": True,
    }

    def __init__(
        self,
        placement: str = placements.ALTERNATING,
        horizon: int = 1500,
        network: str = "",
        render_mode: str | None = None,
    ) -> None:
        """Args:
        placement: a letter for each of the 14 vehicles, h human or r autonomous.
        horizon: steps of 0.1 s in an episode.
        network: a SUMO network file in place of the generated road.
        render_mode: None, or `rgb_array`.
        """
        placements.check(placement)
        path = str(checked_network(network))
        self.render_mode = render_mode
        self.possible_agents = [f"vehicle_{i}" for i in placements.autonomous(placement)]
        self.agents: list[str] = []
        unit = spaces.Box(0.0, 1.0, (OBSERVATIONS,), np.float32)
        limits = spaces.Box(-MAX_ACCELERATION, MAX_ACCELERATION, (1,), np.float32)
        self.observation_spaces = {agent: unit for agent in self.possible_agents}
        self.action_spaces = {agent: limits for agent in self.possible_agents}
        self._horizon = horizon
        self._placement = placement
        self._network = path
        self._recipe = Recipe(
            f"{Simulation.__module__}:{Simulation.__qualname__}",
            {"placement": placement, "network": path, "horizon": horizon},
        )
        self._worker: SimulatorProcess | None = None
        self._picture: FigureEightPicture | None = None
        self._random: np.random.Generator | None = None
        self._time = 0

    def observation_space(self, agent: str) -> spaces.Box:
        """Return the space, the same for all agents."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Box:
        """Return the space, the same for all agents."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        """Put every vehicle to its start, at rest. The same seed gives the same episode."""
        if seed is not None or self._random is None:
            self._random = np.random.default_rng(seed)
        key_data = tuple(int(word) for word in self._random.integers(2**32, size=4))
        if self._worker is None:
            self._worker = SimulatorProcess()
            self._ask("open", tuple(self._recipe))
        self.agents = list(self.possible_agents)
        self._time = 0
        observation = self._ask("reset", Seed(key_data))
        return self._each(observation), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Array]
    ) -> tuple[
        dict[str, Array],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Let every agent accelerate for 0.1 s."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        stacked = np.stack([np.reshape(actions[agent], 1) for agent in self.possible_agents])
        step = Step(*self._ask("step", stacked))
        terminated = bool(step.terminated)
        self._time += 1
        truncated = self._time >= self._horizon and not terminated
        if terminated or truncated:
            self.agents = []
        agents = self.possible_agents
        return (
            self._each(step.observation),
            dict.fromkeys(agents, float(step.reward)),
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            {agent: {} for agent in agents},
        )

    def render(self) -> NDArray[np.uint8] | None:
        """Draw the road and the vehicles from above; needs the extra `video`."""
        if self.render_mode is None:
            return None
        if self._picture is None:
            network = networks.read(self._network)
            self._picture = FigureEightPicture(network, self._placement)
        x, speeds = np.split(self._ask("picture"), 2)
        caption = f"{self._time * STEP:.1f} s, mean speed {speeds.mean():.1f} m/s"
        return self._picture.draw(x, speeds, caption)

    def close(self) -> None:
        """End the simulator's process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _ask(self, what: str, argument: Any = None) -> Any:
        if self._worker is None:
            raise RuntimeError("the environment must be reset first")
        try:
            return self._worker.ask(what, argument)
        except BaseException:
            # Whatever it is, Ctrl-C too: an answer may be on its way that is never read. The
            # next reset starts another process.
            self.close()
            raise

    def _each(self, observation: Array) -> dict[str, Array]:
        return dict(zip(self.possible_agents, observation, strict=True))
