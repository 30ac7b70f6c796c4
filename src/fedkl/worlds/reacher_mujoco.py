"""Reacher-v2 stepped by MuJoCo itself: the reference implementation for `fedkl.worlds.reacher`.

Tests and benchmarks use it on the host; training does not.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from fedkl.core.errors import MissingPackageError
from fedkl.worlds.reacher import ReacherState
from fedkl.worlds.reacher_params import REACH, ReacherParams

FRAME_SKIP = 2


def load_model() -> Any:
    """MuJoCo's compiled model of the reacher.xml that Gymnasium ships."""
    try:
        import mujoco

        gymnasium = importlib.util.find_spec("gymnasium")
        if gymnasium is None or not gymnasium.submodule_search_locations:
            raise ImportError("gymnasium")
    except ImportError as error:
        raise MissingPackageError(
            "MuJoCo's Reacher needs mujoco and gymnasium", "mujoco"
        ) from error
    package = Path(gymnasium.submodule_search_locations[0])
    return mujoco.MjModel.from_xml_path(str(package / "envs/mujoco/assets/reacher.xml"))


class MujocoReacher:
    """One client's Reacher, one episode at a time.

    Gym reads the fingertip where the last stage of MuJoCo's integrator left it, some 1e-6 m off (a
    few mm when the joint limit is hit at speed). Here kinematics are brought up to date first, so
    that the fingertip belongs to the joint angles.

    Args:
        params: one client's params (not stacked).
        seed: of the NumPy generator that draws resets and noise.

    Attributes:
        model: MuJoCo's compiled model.
        data: MuJoCo's simulation state.
    """

    def __init__(self, params: ReacherParams, seed: int = 0) -> None:
        self.model = load_model()
        import mujoco

        self._mujoco = mujoco
        self._low = np.asarray(params.target_low, np.float64)
        self._high = np.asarray(params.target_high, np.float64)
        self._offset = np.asarray(params.action_offset, np.float64)
        self._noise = float(params.action_noise)
        self._random = np.random.default_rng(seed)
        self.data = mujoco.MjData(self.model)
        self._tip = self.model.body("fingertip").id
        self._target = self.model.body("target").id

    def reset(self, state: ReacherState | None = None) -> Float[np.ndarray, " 11"]:
        """Start an episode.

        Args:
            state: where to start; drawn as Reacher-v2 does if None.

        Returns:
            The first observation.
        """
        self._mujoco.mj_resetData(self.model, self.data)
        q, v, target = self._draw() if state is None else state
        self.data.qpos[:] = np.concatenate([q, target])
        self.data.qvel[:2] = v
        self._mujoco.mj_kinematics(self.model, self.data)
        return self._observe()

    def step(self, action: Float[np.ndarray, " 2"]) -> tuple[Float[np.ndarray, " 11"], float]:
        """Step with the client's noise added to `action`.

        Returns:
            The next observation, and the reward (of the state before).
        """
        noise = self._noise * self._random.standard_normal(2)
        distorted = np.asarray(action, np.float64) + self._offset + noise
        reward = -np.linalg.norm(self._gap()) - np.sum(distorted**2)
        self.data.ctrl[:] = distorted
        self._mujoco.mj_step(self.model, self.data, nstep=FRAME_SKIP)
        self._mujoco.mj_kinematics(self.model, self.data)
        return self._observe(), float(reward)

    def _draw(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q = self._random.uniform(-0.1, 0.1, 2)
        v = self._random.uniform(-0.005, 0.005, 2)
        while True:
            target = self._random.uniform(self._low, self._high)
            if np.linalg.norm(target) < REACH:
                return q, v, target

    def _gap(self) -> Float[np.ndarray, " 3"]:
        return self.data.xpos[self._tip] - self.data.xpos[self._target]

    def _observe(self) -> Float[np.ndarray, " 11"]:
        q, target = self.data.qpos[:2], self.data.qpos[2:]
        return np.concatenate([np.cos(q), np.sin(q), target, self.data.qvel[:2], self._gap()])
