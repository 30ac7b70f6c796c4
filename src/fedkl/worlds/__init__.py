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
from fedkl.worlds.classic import Acrobot, CartPole, MountainCarContinuous, Pendulum
from fedkl.worlds.distorted import Distorted
from fedkl.worlds.figure_eight import FigureEight, parallel_env
from fedkl.worlds.gymnasium import Gymnasium
from fedkl.worlds.heterogeneous import Differences
from fedkl.worlds.parameters import Parameter
from fedkl.worlds.pettingzoo import PettingZoo
from fedkl.worlds.probes import Bandit, Chain, PointTarget
from fedkl.worlds.reacher import Reacher, ReacherState
from fedkl.worlds.reacher_params import ReacherParams
from fedkl.worlds.remote import Remote

__all__ = [
    "WORLDS",
    "Acrobot",
    "AnyWorld",
    "Bandit",
    "CartPole",
    "Chain",
    "Continuous",
    "Differences",
    "Discrete",
    "Distorted",
    "FigureEight",
    "Gymnasium",
    "HostedWorld",
    "MountainCarContinuous",
    "Parameter",
    "Pendulum",
    "PettingZoo",
    "PointTarget",
    "Reacher",
    "ReacherParams",
    "ReacherState",
    "Remote",
    "SharedWorld",
    "SoloWorld",
    "Transition",
    "World",
    "parallel_env",
    "register_world",
]
