"""The paper's Algorithm 2 and its baselines, one short file each."""

from fedkl.algorithms.base import ALGORITHMS, Algorithm, register_algorithm
from fedkl.algorithms.fedavg import FedAvg
from fedkl.algorithms.fedkl import FedKL
from fedkl.algorithms.fedprox import FedProx
from fedkl.algorithms.fmarl import FMARL
from fedkl.learning.policy_optimisation import Measured, View

__all__ = [
    "ALGORITHMS",
    "FMARL",
    "Algorithm",
    "FedAvg",
    "FedKL",
    "FedProx",
    "Measured",
    "View",
    "register_algorithm",
]
