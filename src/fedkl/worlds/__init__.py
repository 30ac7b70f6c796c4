"""Worlds: what clients act in. Importing this package registers ours."""

from fedkl.worlds.base import (
    WORLDS,
    AnyWorld,
    Continuous,
    Discrete,
    HostedWorld,
    SharedWorld,
    SoloWorld,
    Transition,
    World,
    register_world,
)
from fedkl.worlds.figure_eight import FigureEight
from fedkl.worlds.probes import Bandit, Chain, PointTarget
from fedkl.worlds.reacher import Reacher, ReacherState
from fedkl.worlds.scenarios import ReacherParams, action_noise, both, iid, initial_states

__all__ = [
    "WORLDS",
    "AnyWorld",
    "Bandit",
    "Chain",
    "Continuous",
    "Discrete",
    "FigureEight",
    "HostedWorld",
    "PointTarget",
    "Reacher",
    "ReacherParams",
    "ReacherState",
    "SharedWorld",
    "SoloWorld",
    "Transition",
    "World",
    "action_noise",
    "both",
    "iid",
    "initial_states",
    "register_world",
]
