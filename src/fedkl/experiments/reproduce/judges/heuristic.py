"""The paper's recipe for d_global, followed to its end: does what it recommends learn faster?"""

from __future__ import annotations

from functools import partial
from typing import Any

from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult, Runs, Verdict
from fedkl.experiments.reproduce.judges.curves import (
    CaseCurves,
    Panel,
    curves_of,
    draw_curves,
    groups_of,
)
from fedkl.experiments.reproduce.statistics import verdict
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.statistics import Estimate, FloatArray, difference, estimate

BEST, LARGER, RECIPE = "best", "larger", "recipe"
"""The best d_local without the penalty, a larger one without it, and the larger one with it."""
_EARLY = 1 / 3
"""Of the rounds: the early stage of training."""


def judge_heuristic(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """Early returns with the recipe, and without it."""
    found = {
        group: next(iter(curves_of(experiment, runs, group).values()))
        for group in groups_of(experiment, runs)
    }
    head = ["case", "d_local", "d_global", "seeds", "early return", "final return"]
    text = (
        "The early return is the mean over the first third of the rounds.\n\n"
        f"{table(head, [_line(curves) for curves in found.values()])}\n"
    )
    panels = [Panel(curves.case.title, [curves]) for curves in found.values()]
    rows = [{"case": group} | _row(curves) for group, curves in found.items()]
    return ExperimentResult(
        rows, partial(draw_curves, panels, "mean return"), text, [_faster(found)]
    )


def _early(curves: CaseCurves) -> FloatArray:
    rounds = max(1, round(_EARLY * curves.values.shape[1]))
    return curves.values[:, :rounds].mean(axis=1)


def _line(curves: CaseCurves) -> list[str]:
    d_global = curves.case.settings.get("algorithm.d_global")
    return [
        f"{curves.case.title} ({curves.name})",
        f"{curves.case.settings['learner.d_local']:g}",
        "-" if d_global is None else f"{d_global:g}",
        f"{len(curves.seeds)}",
        interval_text(estimate(_early(curves))),
        interval_text(estimate(curves.finals())),
    ]


def _row(curves: CaseCurves) -> dict[str, Any]:
    return {
        "d_local": curves.case.settings["learner.d_local"],
        "d_global": curves.case.settings.get("algorithm.d_global"),
        **curves.summary(),
        "early_return": estimate(_early(curves)).value,
    }


def _faster(found: dict[str, CaseCurves]) -> Verdict:
    if RECIPE not in found or BEST not in found:
        return Verdict("faster", OPEN, "the runs are not there yet.")

    def above(other: str) -> Estimate:
        return difference(_early(found[RECIPE]), _early(found[other]))

    gap = above(BEST)
    said = (
        "the early return with the recipe less that with the best d_local and no penalty: "
        f"{interval_text(gap)}"
    )
    if LARGER in found:
        said += (
            f", less that with the larger d_local and no penalty: {interval_text(above(LARGER))}"
        )
    return Verdict("faster", verdict(gap), f"{said}.")
