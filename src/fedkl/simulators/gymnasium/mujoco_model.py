"""A MuJoCo model whose physics differ from its file's, and that can be brought back to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkl.simulators.gymnasium.quantities import SMALL, Quantity


class MuJoCoModel:
    """The arrays of an environment's model, as they were made and as they are."""

    def __init__(self, env: Any) -> None:
        """Args:
        env: of Gymnasium's MuJoCo environments, or like one: with `model`, `data`, `init_qpos`.
        """
        self._env = env
        self._before: dict[str, np.ndarray] = {}
        """Changed arrays as they were before."""
        self._gravity = float(np.linalg.norm(env.model.opt.gravity))

    def parameters(self) -> dict[str, Quantity]:
        """Those that act in this model."""
        model = self._env.model
        factor = "what {} are multiplied by"
        parameters = {"mass": Quantity(1.0, factor.format("all masses and inertias"), SMALL)}
        if self._falls():
            parameters["gravity"] = Quantity(self._gravity, "in m/s²", 0.0)
        if self._touches():
            parameters["friction"] = Quantity(
                1.0, factor.format("the frictions of all surfaces"), 0.0
            )
        if (model.dof_damping != 0).any():
            parameters["damping"] = Quantity(1.0, factor.format("the dampings of all joints"), 0.0)
        if model.nu:
            parameters["strength"] = Quantity(1.0, factor.format("the gears of all motors"), 0.0)
        return parameters

    def nominal(self, name: str) -> Any:
        """Return an array or number of the model as it was made, such as `opt.timestep`; None: no
        such."""
        found = self._before.get(name)
        return self._read(name) if found is None else found

    def rewrite(self, name: str) -> None:
        """Write an array or number of the model as it is; raise whatever writing another would."""
        self._write(name, np.array(self._read(name)))

    def apply(self, params: Mapping[str, Any]) -> None:
        """Set the model to these params; all that they do not name is as it was made."""
        changed = bool(self._before)
        for name, before in self._before.items():
            self._write(name, before)
        self._before = {}
        if "gravity" in params and self._gravity:
            self._scale("opt.gravity", float(params["gravity"]) / self._gravity)
        for parameter, arrays in (
            ("mass", ("body_mass", "body_inertia")),
            ("friction", ("geom_friction", "pair_friction")),
            ("damping", ("dof_damping",)),
            ("strength", ("actuator_gear",)),
        ):
            for array in arrays if parameter in params else ():
                self._scale(array, float(params[parameter]))
        for name, value in params.items():
            if name.startswith("model."):
                path = name.removeprefix("model.")
                self._set(path, np.broadcast_to(np.asarray(value), np.size(self._read(path))))
        if changed or self._before:
            self._settle()

    def _settle(self) -> None:
        """Compute again the values that MuJoCo derived from masses and lengths when it made the
        model."""
        import mujoco

        model = self._env.model
        # In data of its own: what it leaves there must not reach an episode.
        mujoco.mj_setConst(model, mujoco.MjData(model))

    def _scale(self, name: str, factor: float) -> None:
        self._set(name, self._read(name) * factor)

    def _set(self, name: str, value: np.ndarray) -> None:
        before = np.array(self._read(name))
        self._before.setdefault(name, before)
        self._write(name, np.reshape(value, before.shape))

    def _read(self, name: str) -> Any:
        owner, last = self._owner(name)
        return getattr(owner, last, None)

    def _write(self, name: str, value: np.ndarray) -> None:
        owner, last = self._owner(name)
        there = getattr(owner, last)
        if isinstance(there, np.ndarray):
            there[...] = value
        else:
            setattr(owner, last, type(there)(value.item()))

    def _owner(self, name: str) -> tuple[Any, str]:
        owner = self._env.model
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        return owner, last

    def _falls(self) -> bool:
        """Return True if gravity moves anything: in an arm that turns in a plane it does not."""
        import mujoco

        model, data = self._env.model, mujoco.MjData(self._env.model)
        bias = []
        before = np.array(model.opt.gravity)
        # Away from where the model was made: what stands upright there is not drawn to any side.
        data.qpos[:] += 0.1 + 0.05 * (np.arange(model.nq) % 3)
        for gravity in (before, 2 * before):
            model.opt.gravity[:] = gravity
            mujoco.mj_forward(model, data)
            bias.append(np.array(data.qfrc_bias))
        model.opt.gravity[:] = before
        return bool(np.abs(bias[1] - bias[0]).max(initial=0.0) > 1e-9)

    def _touches(self) -> bool:
        """Return True if there are surfaces that can rub against each other."""
        model = self._env.model
        if model.npair:
            return True
        own, other = model.geom_contype[:, None], model.geom_conaffinity[None]
        meets = ((own & other) | (own & other).T) != 0
        rubs = np.maximum(model.geom_condim[:, None], model.geom_condim[None]) > 1
        apart = model.geom_bodyid[:, None] != model.geom_bodyid[None]
        return bool((meets & rubs & apart).any())
