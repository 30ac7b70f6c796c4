"""The paper's Algorithm 2 and its baselines, one short file each."""

from fedkl.algorithms.base import ALGORITHMS, Algorithm, Ended, register_algorithm
from fedkl.algorithms.fedavg import FedAvg
from fedkl.algorithms.fedkl import FedKL
from fedkl.algorithms.fedkl_anchored import FedKLAnchored
from fedkl.algorithms.fedprox import FedProx
from fedkl.algorithms.fmarl import FMARL
from fedkl.algorithms.scaffold import Scaffold
from fedkl.learning.penalty import Coefficient
from fedkl.learning.policy_optimisation import Local, Measured

__all__ = [
    "ALGORITHMS",
    "FMARL",
    "Algorithm",
    "Coefficient",
    "Ended",
    "FedAvg",
    "FedKL",
    "FedKLAnchored",
    "FedProx",
    "Local",
    "Measured",
    "Scaffold",
    "register_algorithm",
]
