"""Train one reinforcement-learning policy across many agents whose worlds differ.

import fedkl

federation = fedkl.Federation(fedkl.preset("demo", algorithm="fedkl"))
for record in federation:
    print(record["round"], record["return_mean"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedkl.algorithms import Algorithm, register_algorithm
    from fedkl.config import Config, preset
    from fedkl.errors import UserError
    from fedkl.federation.loop import Federation
    from fedkl.settings import setting
    from fedkl.worlds import Continuous, Discrete, Transition, World, register_world

# What is asked for is imported then, so that `fedkl.tabular` and `fedkl theory` do without JAX.
_HOMES = {
    "Algorithm": "fedkl.algorithms",
    "Config": "fedkl.config",
    "Continuous": "fedkl.worlds",
    "Discrete": "fedkl.worlds",
    "Federation": "fedkl.federation.loop",
    "Transition": "fedkl.worlds",
    "UserError": "fedkl.errors",
    "World": "fedkl.worlds",
    "preset": "fedkl.config",
    "register_algorithm": "fedkl.algorithms",
    "register_world": "fedkl.worlds",
    "setting": "fedkl.settings",
}

__all__ = [
    "Algorithm",
    "Config",
    "Continuous",
    "Discrete",
    "Federation",
    "Transition",
    "UserError",
    "World",
    "preset",
    "register_algorithm",
    "register_world",
    "setting",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedkl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
