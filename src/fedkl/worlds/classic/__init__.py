"""Four classic-control worlds of Gymnasium, in JAX."""

from fedkl.worlds.classic.acrobot import Acrobot, AcrobotParams, AcrobotState
from fedkl.worlds.classic.cartpole import CartPole, CartPoleParams, CartPoleState
from fedkl.worlds.classic.mountain_car import (
    MountainCarContinuous,
    MountainCarParams,
    MountainCarState,
)
from fedkl.worlds.classic.pendulum import Pendulum, PendulumParams, PendulumState

__all__ = [
    "Acrobot",
    "AcrobotParams",
    "AcrobotState",
    "CartPole",
    "CartPoleParams",
    "CartPoleState",
    "MountainCarContinuous",
    "MountainCarParams",
    "MountainCarState",
    "Pendulum",
    "PendulumParams",
    "PendulumState",
]
