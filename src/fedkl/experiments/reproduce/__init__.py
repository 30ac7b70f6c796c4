"""The paper's experiments again, one command each: `fedkl reproduce NAME`.

It knows presets, runs and the statistics of a report; nothing but the command line knows it.
"""

from fedkl.experiments.reproduce.experiment import (
    Case,
    Experiment,
    ExperimentResult,
    Verdict,
    read_experiments,
)

__all__ = ["EXPERIMENTS", "Case", "Experiment", "ExperimentResult", "Verdict"]

EXPERIMENTS = read_experiments()
"""By name."""
