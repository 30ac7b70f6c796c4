"""The paper's Algorithm 2 and its baselines, one short file each, and what another one needs.

An algorithm knows `learning` and worlds' spaces; clients and servers call its hooks.
"""

import warnings
from typing import Any

from fedkl.algorithms.base import ALGORITHMS, Algorithm, RoundResult, register_algorithm
from fedkl.algorithms.fedavg import FedAvg
from fedkl.algorithms.fedkl import FedKL
from fedkl.algorithms.fedkl_anchored import FedKLAnchored
from fedkl.algorithms.fedprox import FedProx
from fedkl.algorithms.fmarl import FMARL
from fedkl.algorithms.scaffold import Scaffold
from fedkl.learning.distributions import (
    DISTANCES,
    Categorical,
    Distribution,
    Gaussian,
    register_distance,
    safe_sqrt,
)
from fedkl.learning.minibatches import weighted_mean
from fedkl.learning.penalty import SCHEDULES, Coefficient, register_schedule, towards_target
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import HookInput, Measured, PolicyBatch
from fedkl.learning.settings import LearnerSettings, Sharing
from fedkl.learning.statistics import Moments

__all__ = [
    "ALGORITHMS",
    "DISTANCES",
    "FMARL",
    "SCHEDULES",
    "Algorithm",
    "Categorical",
    "Coefficient",
    "Distribution",
    "FedAvg",
    "FedKL",
    "FedKLAnchored",
    "FedProx",
    "Gaussian",
    "HookInput",
    "LearnerSettings",
    "Measured",
    "Moments",
    "Policy",
    "PolicyBatch",
    "RoundResult",
    "Scaffold",
    "Sharing",
    "register_algorithm",
    "register_distance",
    "register_schedule",
    "safe_sqrt",
    "towards_target",
    "weighted_mean",
]

_FORMER = {"Ended": "RoundResult", "Local": "HookInput"}


def __getattr__(name: str) -> Any:
    """Return what a former name stands for."""
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is called {_FORMER[name]} now", DeprecationWarning, stacklevel=2)
    return globals()[_FORMER[name]]
