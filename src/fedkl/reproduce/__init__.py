"""The paper's figures again, one command each: `fedkl reproduce NAME`."""

from fedkl.reproduce.experiment import Case, Experiment, Finding
from fedkl.reproduce.heterogeneity_level import HETEROGENEITY_LEVEL
from fedkl.reproduce.negative_potential import NEGATIVE_POTENTIAL

__all__ = ["EXPERIMENTS", "Case", "Experiment", "Finding"]

EXPERIMENTS = {one.name: one for one in (HETEROGENEITY_LEVEL, NEGATIVE_POTENTIAL)}
"""By name."""
