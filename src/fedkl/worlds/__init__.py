"""Worlds: what clients act in. Importing this package registers ours."""

from fedkl.worlds.base import WORLDS, Continuous, Discrete, Transition, World, register_world
from fedkl.worlds.probes import Bandit, Chain, PointTarget
from fedkl.worlds.reacher import Reacher, ReacherState
from fedkl.worlds.scenarios import ReacherParams, action_noise, both, iid, initial_states

__all__ = [
    "WORLDS",
    "Bandit",
    "Chain",
    "Continuous",
    "Discrete",
    "PointTarget",
    "Reacher",
    "ReacherParams",
    "ReacherState",
    "Transition",
    "World",
    "action_noise",
    "both",
    "iid",
    "initial_states",
    "register_world",
]
