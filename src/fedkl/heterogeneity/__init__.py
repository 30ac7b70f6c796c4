"""The level of heterogeneity, sampled: what a client measures, and what the server makes of it.

It knows clients and what they learn with, and nothing of engines or the server's loop.
"""

from fedkl.heterogeneity.level import Level, level, problem_with_measurement
from fedkl.heterogeneity.measure import Measure, Measurement
from fedkl.heterogeneity.settings import HeterogeneitySettings, check_basis

__all__ = [
    "HeterogeneitySettings",
    "Level",
    "Measure",
    "Measurement",
    "check_basis",
    "level",
    "problem_with_measurement",
]
