"""A client's side: records, the interface of a learner, its round, other work, its episodes.

It knows algorithms, learning, worlds and simulators, and nothing of servers, engines or networks.
The names here are what a learner of one's own needs; all else is private.
"""

from fedkl.clients.behaviour import Behaviour
from fedkl.clients.learner import LEARNERS, Learner, register_learner
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.clients.records import ClientState, Metrics, Model, Start, Task, Trained, Update
from fedkl.learning.policy import Policy
from fedkl.learning.settings import CriticSettings, Sharing
from fedkl.learning.trajectories import Trajectories

__all__ = [
    "LEARNERS",
    "Behaviour",
    "ClientState",
    "CriticSettings",
    "Learner",
    "Metrics",
    "Model",
    "Policy",
    "PolicyOptimisation",
    "Sharing",
    "Start",
    "Task",
    "Trained",
    "Trajectories",
    "Update",
    "register_learner",
]
