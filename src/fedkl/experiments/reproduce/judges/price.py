"""Ours: what heterogeneity costs, and what each algorithm wins back of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult, Runs, Verdict
from fedkl.experiments.reproduce.judges.curves import CaseCurves, Panel, curves_of, draw_curves
from fedkl.experiments.reproduce.statistics import verdict
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.price import won_back
from fedkl.report.statistics import Estimate, estimate, iqm

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


def _verdict(
    alike: dict[str, CaseCurves], others: dict[str, CaseCurves], shares: dict[str, Estimate]
) -> Verdict:
    if "fedkl-anchored" not in shares:
        return Verdict("price", OPEN, "the runs are not there yet.")
    price = float(iqm(alike[BASE].finals()) - iqm(others[BASE].finals()))
    half = shares["fedkl-anchored"]
    said = ", ".join(f"{others[a].name} {interval_text(e, 2)}" for a, e in shares.items())
    return Verdict(
        "price",
        verdict(half.above(0.5)),
        f"the price is {price:.3g}; shares of it won back: {said}.",
    )
