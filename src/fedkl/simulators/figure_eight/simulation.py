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
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import multiply

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.simulators.base import Outcomes, Seed, SimulatorError, Step
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
_1_V0_4 = 1 / _V0**4  # the model's exponent is 4
_1_2_SQRT_AB = 1 / (2 * math.sqrt(_A * _B))
_NOISE = 0.2 * math.sqrt(STEP)
_DESIRED = [DESIRED_SPEED] * placements.VEHICLES
_WORST = math.hypot(*_DESIRED)
# How far SUMO looks for a leader: its default today, said here so that it stays.
_SIGHT = 100.0
# Who is nearer than that is in sight, wherever his lane begins.
_NEAR = _SIGHT - CAR_LENGTH
# A duration so short that the new speed holds for exactly one step.
_AT_ONCE = 1e-3
_OBEY_SAFE_SPEED, _STAY_IN_LANE = 1, 512
_ROWS = 256


class Simulation:
    """The road and its vehicles. SUMO holds one simulation in a process.

    A step: humans accelerate by their driver model with noise, autonomous vehicles as they are
    told, and SUMO moves all vehicles for 0.1 s. The reward, which all agents share, is 1 when every
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
        self._clear_until = _crossings_ahead(self._network)
        self._names = [f"{i}{letter}" for i, letter in enumerate(placement)]
        self._number = {name: i for i, name in enumerate(self._names)}
        n = placements.VEHICLES
        robots = placements.autonomous(placement)
        humans = [i for i in range(n) if i not in robots]
        self._humans = [self._names[i] for i in humans]
        self._robots = [self._names[i] for i in robots]
        # Of a list of all vehicles: the humans', those ahead of them, the robots'.
        self._of_humans = _picker(humans)
        self._ahead_of_humans = _picker([(i + 1) % n for i in humans])
        self._of_robots = _picker(robots)
        self.agents = len(robots)
        self._starts = [self._network.coordinate(*start) for start in placements.STARTS]
        # Speed and position of the vehicle ahead, of itself, and of the vehicle behind.
        self._rows = np.array(
            [[(i + 1) % n, n + (i + 1) % n, i, n + i, (i - 1) % n, n + (i - 1) % n] for i in robots]
        )
        self._pack = struct.Struct(f"{2 * n}f").pack_into
        self._packed = bytearray(8 * n)
        self._unscaled = np.frombuffer(self._packed, np.float32)
        scale = np.array([1 / _TOP_SPEED, 1 / self._length], np.float32)
        self._scale = np.tile(scale, (self.agents, OBSERVATIONS // 2))
        self._noise: Iterator[list[float]] = iter(())
        self.x: list[float] = []
        self.speeds: list[float] = []
        self._start_sumo(math.ceil(horizon * STEP * _TOP_SPEED / self._length) + 2)

    def reset(self, seed: Seed, params: Any = None) -> Float[np.ndarray, "n 6"]:
        """Put every vehicle to its start, at rest; clients share the road, so without params."""
        vehicle = self._sumo.vehicle
        # After a crash, a vehicle that is being teleported is not on the road.
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
        """Accelerate every vehicle for 0.1 s; `actions` in m/s^2 are clipped to [-3, 3]."""
        gain, crashed = self._drive(actions[:, 0].tolist())
        return Step(self._observe(), gain, crashed)

    def step_all(
        self,
        several: Sequence[Any],
        columns: Sequence[int],
        actions: Float[np.ndarray, "n 1 1"],
        following: Float[np.ndarray, "n 1 6"],
    ) -> Outcomes:
        """Return the same in the only column that a process can have; it saves some copies."""
        gain, crashed = self._drive(actions[:, 0, 0].tolist())
        self._observe(following[:, 0])
        return Outcomes([gain], [(0, True, False)] if crashed else [])

    def _drive(self, accelerations: list[float]) -> tuple[float, bool]:
        """Step all vehicles; return the reward, and True if it ended in a crash."""
        # Fourteen vehicles are too few for NumPy to pay, and enough for every call to count.
        speeds, x, slow_down, length = self.speeds, self.x, self._slow_down, self._length
        ends, clear_until = self._ends, self._clear_until
        for name, here, v, there, leader_speed, noise in zip(
            self._humans,
            self._of_humans(x),
            self._of_humans(speeds),
            self._ahead_of_humans(x),
            self._ahead_of_humans(speeds),
            next(self._noise),
            strict=True,
        ):
            lane = bisect_right(ends, here)
            if there < here:
                there += length
            gap = there - here - CAR_LENGTH
            if there >= clear_until[lane] or gap > _NEAR:
                if self._inside[lane]:
                    continue  # SUMO's own driver takes the vehicle through a junction.
                gap, leader_speed = self._leader_beyond(name)
            if -1e-3 < gap < 1e-3:
                gap = 1e-3
            wanted = v * (_T + (v - leader_speed) * _1_2_SQRT_AB)
            held = (_S0 + wanted if wanted > 0.0 else _S0) / gap
            square = v * v
            v += STEP * (_A * (1.0 - square * square * _1_V0_4 - held * held) + noise)
            slow_down(name, v if v > 0.0 else 0.0, _AT_ONCE)
        for name, v, a in zip(self._robots, self._of_robots(speeds), accelerations, strict=True):
            if a > MAX_ACCELERATION:
                a = MAX_ACCELERATION
            elif a < -MAX_ACCELERATION:
                a = -MAX_ACCELERATION
            v += STEP * a
            slow_down(name, v if v > 0.0 else 0.0, _AT_ONCE)
        self._step()
        if self._teleports():
            return 0.0, True
        self.speeds = speeds = self._read_speeds()
        self.x = [
            y if (y := here + STEP * v) < length else y - length
            for here, v in zip(x, speeds, strict=True)
        ]
        return reward(speeds), False

    def picture(self) -> Float[np.ndarray, " 28"]:
        """Return every vehicle's x, then every vehicle's speed."""
        return np.array(self.x + self.speeds, np.float32)

    def close(self) -> None:
        """End SUMO's simulation, so that the process can have another."""
        self._sumo.close()

    def _leader_beyond(self, name: str) -> tuple[float, float]:
        """Gap and speed of whom SUMO sees ahead, beyond the crossing or on the crossing road.

        No vehicle within sight is as good as one infinitely far away.
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

    def _observe(self, out: Float[np.ndarray, "n 6"] | None = None) -> Float[np.ndarray, "n 6"]:
        # Faster than an array of a list.
        self._pack(self._packed, 0, *self.speeds, *self.x)
        return multiply(self._unscaled.take(self._rows), self._scale, out)

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
    """Return the network file that a simulation drives on: the one given, or else the generated
    one.

    Raises:
        UserError: SUMO is missing, the file is not the network of a figure-eight, or its edges are
            too short for the vehicles' starts.
    """
    if importlib.util.find_spec("libsumo") is None:
        raise MissingPackageError(*networks.NEEDS)
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
    """Return the reward: 1 if all vehicles drive 20 m/s, 0 if all stand (or worse).

    Example:
        >>> reward([5.0] * 14)
        0.25
    """
    return max(_WORST - math.dist(speeds, _DESIRED), 0.0) / _WORST


def _crossings_ahead(network: networks.Network) -> list[float]:
    """Return where along the loop the next crossing begins, for each lane; 0 inside of junctions.

    A vehicle ahead and nearer than that is the leader: nothing can come in between. The last lanes
    look across the start of the loop.
    """
    entries = [
        lane.start + lane.length for lane in network.lanes if lane.edge in networks.CROSSINGS
    ]
    entries.append(entries[0] + network.length)
    return [
        0.0 if lane.internal else next(entry for entry in entries if entry > lane.start)
        for lane in network.lanes
    ]


def _picker(numbers: Sequence[int]) -> Callable[[list[float]], tuple[float, ...]]:
    """Return a function that takes these entries of a list, in this order."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda values: tuple(values[i] for i in numbers)


def _rows_of_noise(random: np.random.Generator, width: int) -> Iterator[list[float]]:
    """Yield the noise on human accelerations, a row for each step."""
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
