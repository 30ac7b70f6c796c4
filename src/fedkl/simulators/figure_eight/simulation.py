"""Fourteen vehicles on the figure-eight, moved by SUMO (the paper's Experiment 2).

SUMO's own safety is on: a vehicle never goes faster than SUMO thinks safe, whatever is asked of it.
Trajectories do not depend on SUMO's random numbers; the noise on human drivers is drawn here.
"""

from __future__ import annotations

import importlib.util
import math
import struct
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from fedkl.errors import UserError
from fedkl.simulators.base import Seed, SimulatorError, Step
from fedkl.simulators.figure_eight import network as networks
from fedkl.simulators.figure_eight import placement as placements

STEP = 0.1
MAX_ACCELERATION = 3.0
OBSERVATIONS = 6
DESIRED_SPEED = 20.0
CAR_LENGTH = 5.0

_TOP_SPEED = networks.SPEED_LIMIT
_MIN_GAP = 2.5
# The human driver: the Intelligent Driver Model (Treiber et al. 2000) with Flow's parameters.
_V0, _T, _A, _B, _S0 = 30.0, 1.0, 1.0, 1.5, 2.0
_V0_4 = _V0**4  # the model's exponent is 4
_2_SQRT_AB = 2 * math.sqrt(_A * _B)
_NOISE = 0.2 * math.sqrt(STEP)
_DESIRED = [DESIRED_SPEED] * placements.VEHICLES
_WORST = math.hypot(*_DESIRED)
# How far SUMO looks for a leader: its default today, said here so that it stays.
_SIGHT = 100.0
# A duration so short that the new speed holds for exactly one step.
_AT_ONCE = 1e-3
_OBEY_SAFE_SPEED, _STAY_IN_LANE = 1, 512
_ROWS = 256


class Simulation:
    """The road and its vehicles. SUMO holds one simulation in a process.

    A step: humans accelerate by their driver model with noise, autonomous vehicles as they are
    told, and SUMO moves everybody for 0.1 s. The reward, which all agents share, is 1 when every
    vehicle drives 20 m/s, and 0 after a crash, which ends the episode.

    Attributes:
        agents: how many autonomous vehicles there are.
        x: where each vehicle's front is, in metres along the loop.
        speeds: how fast each vehicle is.
    """

    def __init__(
        self, placement: str = placements.ALTERNATING, network: str = "", horizon: int = 1500
    ) -> None:
        """Args:
        placement: a letter for each vehicle, h or r.
        network: a network file; the figure-eight of the paper if empty.
        horizon: no episode lasts longer than that (routes are made long enough for it).
        """
        placements.check(placement)
        path = checked_network(network)
        import libsumo

        self._sumo = libsumo
        # SWIG's own functions: a call is so cheap that its Python wrapper would show.
        native = self._sumo.libsumo._libsumo
        self._step = native.simulation_step
        self._speed = native.vehicle_getSpeed
        self._slow_down = native.vehicle_slowDown
        self._leader = native.vehicle_getLeader
        self._teleports = native.simulation_getStartingTeleportNumber
        self._network = networks.read(path)
        self._length = self._network.length
        self._ends = [lane.start + lane.length for lane in self._network.lanes]
        self._inside = [lane.internal for lane in self._network.lanes]
        self._names = [f"{i}{letter}" for i, letter in enumerate(placement)]
        self._number = {name: i for i, name in enumerate(self._names)}
        n = placements.VEHICLES
        self._humans = [
            (i, (i + 1) % n, self._names[i]) for i, letter in enumerate(placement) if letter == "h"
        ]
        self._robots = [(i, self._names[i]) for i in placements.autonomous(placement)]
        self.agents = len(self._robots)
        self._starts = [self._network.coordinate(*start) for start in placements.STARTS]
        # Speed and position of the vehicle ahead, of itself, and of the vehicle behind.
        self._rows = np.array(
            [
                [(i + 1) % n, n + (i + 1) % n, i, n + i, (i - 1) % n, n + (i - 1) % n]
                for i, _ in self._robots
            ]
        )
        self._pack = struct.Struct(f"{2 * n}f").pack_into
        self._packed = bytearray(8 * n)
        self._unscaled = np.frombuffer(self._packed, np.float32)
        self._scale = np.repeat(np.array([1 / _TOP_SPEED, 1 / self._length], np.float32), n)
        self._noise: Iterator[list[float]] = iter(())
        self.x: list[float] = []
        self.speeds: list[float] = []
        self._start_sumo(math.ceil(horizon * STEP * _TOP_SPEED / self._length) + 2)

    def reset(self, seed: Seed, params: Any = None) -> Float[np.ndarray, "n 6"]:
        """Puts every vehicle to its start, at rest; clients share the road, so without params."""
        vehicle = self._sumo.vehicle
        # After a crash, whoever is being teleported is not on the road.
        for name in (*vehicle.getIDList(), *vehicle.getTeleportingIDList()):
            vehicle.remove(name)
        self._sumo.simulationStep()
        for name, (edge, position) in zip(self._names, placements.STARTS, strict=True):
            kind = "human" if name[-1] == "h" else "robot"
            vehicle.add(
                name, edge, typeID=kind, depart="now", departPos=str(position), departSpeed="0"
            )
            vehicle.setSpeedMode(name, _OBEY_SAFE_SPEED)
            vehicle.setLaneChangeMode(name, _STAY_IN_LANE)
        self._sumo.simulationStep()
        self._noise = _rows_of_noise(seed.generator(), len(self._humans))
        self.x = list(self._starts)
        self.speeds = self._read_speeds()
        return self._observe()

    def step(self, actions: Float[np.ndarray, "n 1"]) -> Step:
        """Accelerates every vehicle for 0.1 s; `actions` in m/s^2 are clipped to [-3, 3]."""
        # Fourteen vehicles are too few for NumPy to pay, and enough for every call to count.
        speeds, x, slow_down, ends = self.speeds, self.x, self._slow_down, self._ends
        for (i, ahead, name), noise in zip(self._humans, next(self._noise), strict=True):
            here, v = x[i], speeds[i]
            lane = bisect_right(ends, here)
            if self._inside[lane]:
                continue  # SUMO's own driver takes the vehicle through a junction.
            if here < x[ahead] < ends[lane]:
                gap, leader_speed = x[ahead] - here - CAR_LENGTH, speeds[ahead]
            else:
                gap, leader_speed = self._leader_beyond(name)
            if -1e-3 < gap < 1e-3:
                gap = 1e-3
            wanted = v * _T + v * (v - leader_speed) / _2_SQRT_AB
            wanted = _S0 + wanted if wanted > 0.0 else _S0
            free, held = v * v * v * v / _V0_4, wanted / gap
            v += STEP * (_A * (1.0 - free - held * held) + noise)
            slow_down(name, v if v > 0.0 else 0.0, _AT_ONCE)
        for (i, name), action in zip(self._robots, actions[:, 0].tolist(), strict=True):
            if action > MAX_ACCELERATION:
                action = MAX_ACCELERATION
            elif action < -MAX_ACCELERATION:
                action = -MAX_ACCELERATION
            v = speeds[i] + STEP * action
            slow_down(name, v if v > 0.0 else 0.0, _AT_ONCE)
        self._step()
        if self._teleports():
            return Step(self._observe(), 0.0, True)
        self.speeds = speeds = self._read_speeds()
        length = self._length
        self.x = [
            y if (y := here + STEP * v) < length else y - length
            for here, v in zip(x, speeds, strict=True)
        ]
        return Step(self._observe(), reward(speeds), False)

    def picture(self) -> Float[np.ndarray, " 28"]:
        """Every vehicle's x, then every vehicle's speed."""
        return np.array(self.x + self.speeds, np.float32)

    def close(self) -> None:
        """Ends SUMO's simulation, so that the process can have another."""
        self._sumo.close()

    def _leader_beyond(self, name: str) -> tuple[float, float]:
        """Gap and speed of whom SUMO sees ahead, beyond the lane's end or on the crossing road.

        Nobody within sight is as good as somebody infinitely far away.
        """
        leader = self._leader(name, _SIGHT)
        if not leader or not leader[0]:
            return math.inf, 0.0
        # SUMO's distance leaves the minimal gap out.
        return leader[1] + _MIN_GAP, self.speeds[self._number[leader[0]]]

    def _read_speeds(self) -> list[float]:
        try:
            speeds = list(map(self._speed, self._names))
        except self._sumo.TraCIException as error:
            raise SimulatorError(f"SUMO lost a vehicle: {error}") from error
        if min(speeds) < 0:  # SUMO's answer for a vehicle that is not on the road
            raise SimulatorError("SUMO lost a vehicle")
        return speeds

    def _observe(self) -> Float[np.ndarray, "n 6"]:
        # Faster than an array of a list.
        self._pack(self._packed, 0, *self.speeds, *self.x)
        return (self._unscaled * self._scale).take(self._rows)

    def _start_sumo(self, laps: int) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".add.xml") as types:
            types.write(_vehicle_types())
            types.flush()
            try:
                self._sumo.start(
                    [
                        *("sumo", "--net-file", str(self._network.path)),
                        *("--additional-files", types.name),
                        *("--step-length", str(STEP)),
                        *("--time-to-teleport", "-1"),
                        *("--collision.check-junctions", "true"),
                        *("--seed", "0", "--no-step-log", "true", "--no-warnings", "true"),
                    ]
                )
            except self._sumo.TraCIException as error:
                raise UserError(f"SUMO refuses {self._network.path}: {error}") from error
        # Routes for all laps at once: re-routing on the way would cost more than driving.
        for i, edge in enumerate(networks.LOOP):
            cycle = networks.LOOP[i:] + networks.LOOP[:i]
            self._sumo.route.add(edge, list(cycle) * laps)


def checked_network(network: str) -> Path:
    """The network file that a simulation drives on: the one given, or else the generated one.

    Raises:
        UserError: SUMO is missing, the file is not the network of a figure-eight, or its edges are
            too short for the vehicles' starts.
    """
    if importlib.util.find_spec("libsumo") is None:
        raise UserError(networks.MISSING)
    found = networks.read(network) if network else networks.figure_eight()
    lengths = {lane.edge: lane.length for lane in found.lanes}
    for edge, position in placements.STARTS:
        if position > lengths[edge]:
            raise UserError(
                f"{found.path}: edge {edge} is {lengths[edge]:g} m long, and a vehicle starts at "
                f"{position:g} m"
            )
    return found.path.resolve()


def reward(speeds: list[float]) -> float:
    """How near all vehicles are to 20 m/s: 1 if all drive it, 0 if all stand (or worse).

    Example:
        >>> reward([5.0] * 14)
        0.25
    """
    return max(_WORST - math.dist(speeds, _DESIRED), 0.0) / _WORST


def _rows_of_noise(random: np.random.Generator, width: int) -> Iterator[list[float]]:
    """The noise on human accelerations, a row for each step."""
    while True:
        yield from (random.standard_normal((_ROWS, width)) * _NOISE).tolist()


def _vehicle_types() -> str:
    common = (
        f'carFollowModel="IDM" accel="2.6" tau="1.0" minGap="{_MIN_GAP}" maxSpeed="{_TOP_SPEED}" '
        # Without it trajectories would depend on SUMO's seed, and a reset would not be exact.
        'speedFactor="1" speedDev="0" sigma="0.5" impatience="0.5" '
        f'length="{CAR_LENGTH}"'
    )
    kinds = "".join(
        f'<vType id="{name}" decel="{decel}" {common}/>'
        for name, decel in (("human", 1.5), ("robot", 4.5))
    )
    return f"<additional>{kinds}</additional>"
