"""Train one reinforcement-learning policy across many agents whose worlds differ.

import fedkl

federation = fedkl.Federation(fedkl.preset("demo", algorithm="fedkl"))
for record in federation:
    print(record["round"], record["return_mean"])
"""

from fedkl.algorithms import Algorithm, register_algorithm
from fedkl.config import Config, preset
from fedkl.errors import UserError
from fedkl.federation.loop import Federation
from fedkl.settings import setting
from fedkl.worlds import Continuous, Discrete, Transition, World, register_world

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
