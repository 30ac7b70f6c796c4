"""Ours: what heterogeneity costs, and what each algorithm wins back of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult, Runs, Verdict
from fedkl.experiments.reproduce.judges.curves import CaseCurves, Panel, curves_of, draw_curves
from fedkl.experiments.reproduce.statistics import verdict
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.statistics import Estimate, FloatArray, estimate, iqm, resampled

ALIKE, DIFFERENT = "alike", "different"
BASE = "fedavg"


def judge_price(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """The share of FedAvg's loss that each algorithm wins back."""
    alike = curves_of(experiment, runs, ALIKE)
    others = curves_of(experiment, runs, DIFFERENT)
    shares = {
        a: won_back(alike[BASE].finals(), others[BASE].finals(), others[a].finals())
        for a in others
        if a != BASE and BASE in alike and BASE in others
    }
    rows: list[dict[str, Any]] = [
        {
            "clients": group,
            "algorithm": a,
            "seeds": len(curves.seeds),
            "final_return": estimate(curves.finals()).value,
            "won_back": shares[a].value if group == DIFFERENT and a in shares else None,
        }
        for group, some in ((ALIKE, alike), (DIFFERENT, others))
        for a, curves in some.items()
    ]
    lines = [
        [c.name, "alike", f"{len(c.seeds)}", interval_text(estimate(c.finals())), ""]
        for c in alike.values()
    ]
    lines += [
        [
            c.name,
            "different",
            f"{len(c.seeds)}",
            interval_text(estimate(c.finals())),
            interval_text(shares[a], 2) if a in shares else "",
        ]
        for a, c in others.items()
    ]
    head = ["algorithm", "clients", "seeds", "final return", "share of the price won back"]
    panels = [
        Panel(title, [*some.values()])
        for title, some in (("clients alike", alike), ("clients that differ", others))
        if some
    ]
    draw = partial(draw_curves, panels, "mean return")
    return ExperimentResult(
        rows, draw, f"{table(head, lines)}\n", [_verdict(alike, others, shares)]
    )


def won_back(top: FloatArray, base: FloatArray, own: FloatArray) -> Estimate:
    """The share of the way from the returns `base` up to `top` that `own` have come."""
    values = np.concatenate([top, base, own])
    strata = np.repeat([0, 1, 2], [len(top), len(base), len(own)])

    def share(rows: np.ndarray) -> float:
        parts = [values[rows[strata[rows] == one]] for one in range(3)]
        high, low, here = (float(iqm(part)) for part in parts)
        return (here - low) / (high - low) if high != low else float("nan")

    return resampled(share, strata)


def _verdict(
    alike: dict[str, CaseCurves], others: dict[str, CaseCurves], shares: dict[str, Estimate]
) -> Verdict:
    if "fedkl-anchored" not in shares:
        return Verdict("price", OPEN, "the runs are not there yet.")
    price = float(iqm(alike[BASE].finals()) - iqm(others[BASE].finals()))
    half = shares["fedkl-anchored"]
    above = Estimate(
        half.value - 0.5,
        None if half.low is None else half.low - 0.5,
        None if half.high is None else half.high - 0.5,
    )
    said = ", ".join(f"{others[a].name} {interval_text(e, 2)}" for a, e in shares.items())
    return Verdict(
        "price", verdict(above), f"the price is {price:.3g}; shares of it won back: {said}."
    )
