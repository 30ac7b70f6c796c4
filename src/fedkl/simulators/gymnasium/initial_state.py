"""First states of environments, by parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkl.simulators.gymnasium.quantities import Quantity

_LOW, _HIGH = "initial_low", "initial_high"
_WALLS = (-1.2, 0.6)
_CAR = {
    _LOW: (Quantity(-0.6, "leftmost start", *_WALLS), "low"),
    _HIGH: (Quantity(-0.4, "rightmost start", *_WALLS), "high"),
}
_OPTIONS = {
    "CartPoleEnv": {
        _LOW: (Quantity(-0.05, "least value of each number of a first state"), "low"),
        _HIGH: (Quantity(0.05, "largest value of each number of a first state"), "high"),
    },
    "PendulumEnv": {
        "initial_angle": (
            Quantity(math.pi, "largest angle of a first state, to either side of upright", 0.0),
            "x_init",
        ),
        "initial_speed": (
            Quantity(1.0, "largest speed of a first state, to either side", 0.0),
            "y_init",
        ),
    },
    "Continuous_MountainCarEnv": _CAR,
    "MountainCarEnv": _CAR,
}
"""By the class of the environment: parameters, and the options of its `reset` that say the same."""
_BOUND = Quantity(0.1, "largest size of each number of a first state", 0.0)


class InitialState:
    """The distribution of an environment's first state."""

    def __init__(self, env: Any) -> None:
        """Args:
        env: the environment, without its wrappers.
        """
        self._env = env
        ours = type(env).__module__.startswith("gymnasium.envs.")
        self._options = _OPTIONS.get(type(env).__name__, {}) if ours else {}
        self._acrobot = ours and type(env).__name__ == "AcrobotEnv"
        self._mujoco = hasattr(env, "init_qpos") and hasattr(env, "set_state")
        self.parameters = {
            parameter: quantity for parameter, (quantity, _) in self._options.items()
        }
        if self._acrobot:
            self.parameters["initial_bound"] = _BOUND
        self.placed: tuple[str, ...] = (_LOW, _HIGH) if self._mujoco else ()
        """Parameters by which `place` goes, behind the back of wrappers."""
        if self._mujoco:
            self.parameters |= self._around()

    def options(self, params: Mapping[str, Any]) -> dict[str, float] | None:
        """Return the options of a reset; all of them every time, because a reset forgets."""
        if self._acrobot and "initial_bound" in params:
            bound = float(params["initial_bound"])
            return {"low": -bound, "high": bound}
        if not self._options.keys() & params.keys():
            return None
        return {
            option: float(params.get(parameter, quantity.nominal))
            for parameter, (quantity, option) in self._options.items()
        }

    def moves(self, params: Mapping[str, Any]) -> bool:
        """Return True if `place` is to be called after a reset."""
        return self._mujoco and bool({_LOW, _HIGH} & params.keys())

    def place(self, params: Mapping[str, Any], random: np.random.Generator) -> Any:
        """Put a MuJoCo model near its first state; return the observation there."""
        import mujoco

        env = self._env
        first = np.concatenate([env.init_qpos, env.init_qvel])
        ends = [
            params.get(parameter, self.parameters[parameter].nominal) for parameter in (_LOW, _HIGH)
        ]
        low, high = (np.broadcast_to(np.asarray(end, np.float64), first.shape) for end in ends)
        state = first + random.uniform(low, high)
        # What the solver of the reset's own first state left would show in the last digits.
        mujoco.mj_resetData(env.model, env.data)
        env.set_state(state[: env.model.nq], state[env.model.nq :])
        return env._get_obs()

    def _around(self) -> dict[str, Quantity]:
        model = self._env.model
        reach = np.full(model.nq + model.nv, getattr(self._env, "_reset_noise_scale", 0.0))
        if type(self._env).__name__ == "ReacherEnv":
            # Two joints, the target, and how fast they are.
            reach = np.array([0.1, 0.1, 0.2, 0.2, 0.005, 0.005, 0.0, 0.0])
        help = (
            "end of how far positions, then velocities, are from the model's first ones, drawn "
            "uniformly, also where the environment itself draws velocities normally"
        )
        return {
            _LOW: Quantity(tuple((-reach).tolist()), f"lower {help}"),
            _HIGH: Quantity(tuple(reach.tolist()), f"upper {help}"),
        }
