"""Environments by their id: found, made without what gets in the way, or refused in a sentence."""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.core.own_code import explained
from fedkl.core.text import one_line

_EXTRAS = {"gymnasium.envs.box2d": "box2d", "gymnasium.envs.mujoco": "mujoco"}
"""The extra that environments of a module need."""
_OF_IMAGES = ("CarRacing",)
"""Environments that need a package to be made, and could not be used with it either."""


def find(id: str) -> EnvSpec:
    """Return the registration of an id; `module:id` imports the module first.

    Raises:
        UserError: nothing is.
    """
    module, colon, name = id.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UserError(
                f"world.id: the module of '{id}' cannot be imported: {error}"
            ) from error
    if name not in gymnasium.registry:
        raise UserError(f"world.id: there is no Gymnasium environment '{name}'; {_meant(name)}")
    return gymnasium.registry[name]


def is_clean(spec: EnvSpec) -> bool:
    """Return True if an environment is known to keep nothing of past episodes, nor to truncate.

    Wrappers of its registration may do either.
    """
    return _module_of(spec).startswith("gymnasium.envs.") and not spec.additional_wrappers


def make(spec: EnvSpec, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make the environment, without wrappers that check or count: the limit is ours.

    Raises:
        UserError: something that it needs is missing, or it refuses its arguments.
    """
    bare = copy.deepcopy(spec)
    bare.order_enforce = False
    try:
        with _quiet(spec):
            return gymnasium.make(
                bare, max_episode_steps=-1, disable_env_checker=True, **dict(arguments)
            )
    except Exception as error:
        raise explained(_cannot_be_made(spec, error), error) from error


def silence_mujoco() -> None:
    """Silence MuJoCo's warnings; else it writes them into a file in the current folder."""
    if (mujoco := _imported("mujoco")) is not None:
        mujoco.set_mju_user_warning(lambda *_: None)


@contextlib.contextmanager
def _quiet(spec: EnvSpec) -> Iterator[None]:
    """Print nothing, and leave nothing in the current folder, while an environment is made."""
    before = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Gymnasium's module or a user's: once it is there, MuJoCo is, if it needs it.
        if isinstance(spec.entry_point, str):
            load_env_creator(spec.entry_point)
        if (mujoco := _imported("mujoco")) is not None:
            before = mujoco.get_mju_user_warning()
            silence_mujoco()
        try:
            yield
        finally:
            if (mujoco := _imported("mujoco")) is not None:
                mujoco.set_mju_user_warning(before)


def _module_of(spec: EnvSpec) -> str:
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else ""


def _meant(name: str) -> str:
    """Suggest ids that are close to a name."""
    if name.lower().startswith("ale/"):
        return (
            "Atari's games are in the package ale-py: `pip install ale-py`, then "
            f"gym:ale_py:{name} with --set 'world.arguments=[obs_type=ram]', because "
            "images are not supported"
        )
    by_lower = {id.lower(): id for id in gymnasium.registry}
    close = difflib.get_close_matches(name.lower(), by_lower, 3, 0.6)
    if not close:
        return "`gymnasium.pprint_registry()` prints them, and a plugin may register others"
    return f"did you mean {' or '.join(by_lower[key] for key in close)}?"


def _cannot_be_made(spec: EnvSpec, error: Exception) -> str:
    missing = isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled)
    extra = next((e for m, e in _EXTRAS.items() if _module_of(spec).startswith(m)), "")
    package = {"box2d": "Box2D", "mujoco": "mujoco"}.get(extra)
    if missing and spec.name in _OF_IMAGES:
        return f"world.id: the environment {spec.id} gives images, which are not supported"
    if missing and package and not importlib.util.find_spec(package):
        return str(
            MissingPackageError(f"world.id: the environment {spec.id} needs {package}", extra)
        )
    return f"world.id: the environment {spec.id} cannot be made: {one_line(error)}"


def _imported(package: str) -> Any:
    """Return a package that is imported already; else None."""
    return sys.modules.get(package)
