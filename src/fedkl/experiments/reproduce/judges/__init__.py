"""Judges of experiments: from the tables of runs to a figure, numbers and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedkl.experiments.reproduce.experiment import Experiment, ExperimentResult, Runs
from fedkl.experiments.reproduce.judges.anchors import judge_anchors
from fedkl.experiments.reproduce.judges.averaging import judge_averaging
from fedkl.experiments.reproduce.judges.figure_eight import (
    judge_communication,
    judge_same_step,
    judge_speed,
)
from fedkl.experiments.reproduce.judges.heterogeneity_level import judge_heterogeneity_level
from fedkl.experiments.reproduce.judges.heuristic import judge_heuristic
from fedkl.experiments.reproduce.judges.negative_potential import judge_negative_potential
from fedkl.experiments.reproduce.judges.price import judge_price
from fedkl.experiments.reproduce.judges.saving import judge_saving
from fedkl.experiments.reproduce.judges.stability import judge_stability
from fedkl.experiments.reproduce.judges.step_sizes import judge_step_sizes

Judge = Callable[[Experiment, Runs], ExperimentResult]

JUDGES: Mapping[str, Judge] = {
    "stability": judge_stability,
    "speed": judge_speed,
    "same-step": judge_same_step,
    "communication": judge_communication,
    "heterogeneity-level": judge_heterogeneity_level,
    "negative-potential": judge_negative_potential,
    "step-sizes": judge_step_sizes,
    "saving": judge_saving,
    "heuristic": judge_heuristic,
    "averaging": judge_averaging,
    "price": judge_price,
    "anchors": judge_anchors,
}
"""By the name that the table of experiments has."""
