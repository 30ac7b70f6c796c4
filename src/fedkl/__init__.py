"""Train one reinforcement-learning policy across many agents whose worlds differ.

import fedkl

federation = fedkl.Federation(fedkl.preset("demo", algorithm="fedkl"))
for record in federation:
    print(record["round"], record["return_mean"])
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkl.algorithms import Algorithm, register_algorithm
    from fedkl.config import Config, preset
    from fedkl.errors import StalledError, UserError
    from fedkl.server.aggregation import (
        Reducer,
        Step,
        Transform,
        register_reducer,
        register_step,
        register_transform,
    )
    from fedkl.server.loop import Federation
    from fedkl.server.selection import Selector, register_selector
    from fedkl.settings import setting
    from fedkl.worlds import (
        Continuous,
        Discrete,
        SharedWorld,
        SoloWorld,
        Transition,
        Word,
        World,
        register_world,
    )

# What is asked for is imported then, so that `fedkl.tabular` and `fedkl theory` do without JAX.
_HOMES = {
    "Algorithm": "fedkl.algorithms",
    "Config": "fedkl.config",
    "Continuous": "fedkl.worlds",
    "Discrete": "fedkl.worlds",
    "Federation": "fedkl.server.loop",
    "Reducer": "fedkl.server.aggregation",
    "Selector": "fedkl.server.selection",
    "SharedWorld": "fedkl.worlds",
    "SoloWorld": "fedkl.worlds",
    "StalledError": "fedkl.errors",
    "Step": "fedkl.server.aggregation",
    "Transform": "fedkl.server.aggregation",
    "Transition": "fedkl.worlds",
    "UserError": "fedkl.errors",
    "Word": "fedkl.worlds",
    "World": "fedkl.worlds",
    "preset": "fedkl.config",
    "register_algorithm": "fedkl.algorithms",
    "register_reducer": "fedkl.server.aggregation",
    "register_selector": "fedkl.server.selection",
    "register_step": "fedkl.server.aggregation",
    "register_transform": "fedkl.server.aggregation",
    "register_world": "fedkl.worlds",
    "setting": "fedkl.settings",
}

__all__ = [
    "Algorithm",
    "Config",
    "Continuous",
    "Discrete",
    "Federation",
    "Reducer",
    "Selector",
    "SharedWorld",
    "SoloWorld",
    "StalledError",
    "Step",
    "Transform",
    "Transition",
    "UserError",
    "Word",
    "World",
    "preset",
    "register_algorithm",
    "register_reducer",
    "register_selector",
    "register_step",
    "register_transform",
    "register_world",
    "setting",
]


if not TYPE_CHECKING:  # else a type checker would believe in every name

    def __getattr__(name):
        """A public name, or a part of the package: `fedkl.tabular` needs no import of its own."""
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        if not name.startswith("_") and find_spec(f"fedkl.{name}") is not None:
            return import_module(f"fedkl.{name}")
        raise AttributeError(f"module 'fedkl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
