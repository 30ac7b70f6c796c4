"""Parameters of environments: gravity, masses, friction and the like.

Every parameter that is offered acts. Some that one might expect do nothing in Gymnasium, which has
the number in its code, or keeps a value once computed from it; they are not offered, or the value
is computed again.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedkl.simulators.gymnasium.mujoco_model import MuJoCoModel
from fedkl.simulators.gymnasium.quantities import SMALL, Quantity, quantity_of


class Attribute(NamedTuple):
    """A parameter that is an attribute of the environment."""

    parameter: str
    name: str
    help: str
    low: float = -math.inf
    high: float = math.inf


class EnvFamily(NamedTuple):
    """Environments that have the same parameters."""

    attributes: Sequence[Attribute]
    derive: Callable[[Any], None] = lambda env: None
    """Computes again what the environment has computed from them."""


def _cart(env: Any) -> None:
    env.total_mass = env.masspole + env.masscart
    env.polemass_length = env.masspole * env.length


def _torque(env: Any) -> None:
    env.action_space = type(env.action_space)(
        -env.max_torque, env.max_torque, env.action_space.shape, env.action_space.dtype
    )


_GOAL = (
    Attribute("goal_position", "goal_position", "where the goal is"),
    Attribute("goal_velocity", "goal_velocity", "how fast the car must be there, at least"),
)
KINDS = {
    "CartPoleEnv": EnvFamily(
        (
            Attribute("gravity", "gravity", "pulls the pole down"),
            Attribute("masscart", "masscart", "mass of the cart", SMALL),
            Attribute("masspole", "masspole", "mass of the pole", SMALL),
            Attribute("length", "length", "half of the pole's length", SMALL),
            Attribute("force_mag", "force_mag", "by which the cart is pushed"),
        ),
        _cart,
    ),
    "PendulumEnv": EnvFamily(
        (
            Attribute("gravity", "g", "pulls the pendulum down"),
            Attribute("mass", "m", "of the pendulum", SMALL),
            Attribute("length", "l", "of the pendulum", SMALL),
            Attribute("max_torque", "max_torque", "the motor's limit, which action 1 is", SMALL),
            Attribute("max_speed", "max_speed", "at which the pendulum is held", SMALL),
        ),
        _torque,
    ),
    "Continuous_MountainCarEnv": EnvFamily((Attribute("power", "power", "of the motor"), *_GOAL)),
    "MountainCarEnv": EnvFamily(
        (
            Attribute("force", "force", "of the motor"),
            Attribute("gravity", "gravity", "by which the slope pulls"),
            *_GOAL,
        )
    ),
    "AcrobotEnv": EnvFamily(
        (
            Attribute("link_length_1", "LINK_LENGTH_1", "of the first link", SMALL),
            Attribute("link_mass_1", "LINK_MASS_1", "of the first link", SMALL),
            Attribute("link_mass_2", "LINK_MASS_2", "of the second link", SMALL),
            Attribute("link_com_1", "LINK_COM_POS_1", "centre of mass of the first link", SMALL),
            Attribute("link_com_2", "LINK_COM_POS_2", "centre of mass of the second link", SMALL),
            Attribute("link_moi", "LINK_MOI", "moment of inertia of either link", SMALL),
        )
    ),
}
"""By the class of the environment, for Gymnasium's classic control."""

_LANDER = {
    "gravity": Quantity(10.0, "pulls the lander down", 0.01, 11.99),
    "wind": Quantity(0.0, "the largest force of the wind; 0: there is none", 0.0),
}
_STRENGTH = Quantity(1.0, "of the motor: what the torques of all actions are multiplied by")


class Physics:
    """The parameters of one environment, and their nominal values."""

    def __init__(self, env: Any) -> None:
        """Args:
        env: the environment, without its wrappers.
        """
        self._env = env
        self._class = type(env).__name__
        ours = type(env).__module__.startswith("gymnasium.envs.")
        self._kind = KINDS.get(self._class, EnvFamily(())) if ours else EnvFamily(())
        self._lander = ours and self._class == "LunarLander"
        self._model = (
            MuJoCoModel(env) if hasattr(env, "model") and hasattr(env, "init_qpos") else None
        )
        self._raw: dict[str, Any] = {}
        """Attributes that were changed, as they were before."""
        self._torques = list(env.AVAIL_TORQUE) if self._class == "AcrobotEnv" else None
        self.parameters = self._parameters()

    def _parameters(self) -> dict[str, Quantity]:
        result = {
            a.parameter: Quantity(float(getattr(self._env, a.name)), a.help, a.low, a.high)
            for a in self._kind.attributes
        }
        if self._torques is not None:
            result["max_torque"] = _STRENGTH
        if self._lander:
            result |= _LANDER
        if self._model is not None:
            result |= self._model.parameters()
        return result

    def raw(self, name: str) -> Quantity | None:
        """Return the quantity of a raw name; None if the environment has no such number that can be
        set."""
        kind, _, rest = name.partition(".")
        if kind == "make":
            return self._argument(rest)
        if kind == "attribute":
            now = self._raw.get(rest, getattr(self._env, rest, None))
            found = quantity_of(now, f"the environment's {rest}")
            return found if found and _works(lambda: self._rewrite(rest)) else None
        model = self._model
        if kind == "model" and model is not None:
            found = quantity_of(model.nominal(rest), f"{rest} of the MuJoCo model")
            return found if found and _works(lambda: model.rewrite(rest)) else None
        return None

    def _argument(self, name: str) -> Quantity | None:
        """Return an argument of the constructor: what it was given, or else the default."""
        there = inspect.signature(type(self._env).__init__).parameters
        if name not in there:
            return None
        help = f"the constructor's {name}"
        default = quantity_of(there[name].default, help)
        given = quantity_of(getattr(self._env.spec, "kwargs", {}).get(name), help)
        if given is None or default is None:
            return given or default
        # A user may have written 3 for 3.0, here or there.
        return given._replace(whole=given.whole and default.whole)

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments in these params: such an environment has to be made
        anew."""
        result: dict[str, Any] = {}
        for name, value in params.items():
            if name.startswith("make."):
                known = self.raw(name)
                assert known is not None
                whole = known.whole
                result[name.removeprefix("make.")] = int(value) if whole else _plain(value)
        if self._lander and "gravity" in params:
            result["gravity"] = -float(params["gravity"])
        if self._lander and "wind" in params:
            wind = float(params["wind"])
            result |= {"enable_wind": wind > 0, "wind_power": wind}
        return result

    def apply(self, params: Mapping[str, Any]) -> None:
        """Set the environment to these params; all that they do not name is nominal."""
        for name, before in self._raw.items():
            setattr(self._env, name, before)
        self._raw = {}
        for attribute in self._kind.attributes:
            nominal = self.parameters[attribute.parameter].nominal
            setattr(self._env, attribute.name, float(params.get(attribute.parameter, nominal)))
        if self._torques is not None:
            strength = float(params.get("max_torque", 1.0))
            self._env.AVAIL_TORQUE = [strength * torque for torque in self._torques]
        self._kind.derive(self._env)
        for name, value in params.items():
            if name.startswith("attribute."):
                attribute_name = name.removeprefix("attribute.")
                self._raw[attribute_name] = getattr(self._env, attribute_name)
                self._set(attribute_name, value)
        if self._model is not None:
            self._model.apply(params)

    def _rewrite(self, attribute: str) -> None:
        self._set(attribute, getattr(self._env, attribute))

    def _set(self, attribute: str, value: Any) -> None:
        before = getattr(self._env, attribute)
        shaped = np.array(value).reshape(np.shape(before))
        setattr(self._env, attribute, _like(before, shaped))


def _works(write: Callable[[], None]) -> bool:
    """Return True if a write succeeds; an environment may refuse in any way that it likes."""
    try:
        write()
    except Exception:
        return False
    return True


def _like(before: Any, value: np.ndarray) -> Any:
    if isinstance(before, np.ndarray):
        return value.astype(before.dtype)
    if isinstance(before, list | tuple):
        return type(before)(value.tolist())
    return type(before)(value.item())


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()
