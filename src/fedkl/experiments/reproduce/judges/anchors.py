"""Ours: weighted anchors with one setting, where clients are alike and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.experiments.reproduce.experiment import (
    FAILS,
    HOLDS,
    OPEN,
    Experiment,
    ExperimentResult,
    Runs,
    Verdict,
)
from fedkl.experiments.reproduce.judges.curves import CaseCurves, curves_of
from fedkl.experiments.reproduce.statistics import together, verdict
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.lines import round_ticks
from fedkl.report.price import won_back
from fedkl.report.statistics import Estimate, difference, estimate, iqm
from fedkl.report.style import MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE, OURS = "fedavg", "fedkl-anchored"
COST = 0.15
"""Of return, at the most, where there is nothing to win."""
AHEAD_FROM = 5
WORST = -9.0
LINES = {
    "FedAvg": (MUTED, "-"),
    "FedKL": (MUTED, ":"),
    "FedAvg, personal bias": (MUTED, "--"),
    "anchored": ("#c2703d", "-"),
    "weighted anchors": ("#1f6f8b", "-"),
    "weighted anchors, personal bias": ("#1f6f8b", "--"),
}
"""Colour and dashes of each."""


class Kind(NamedTuple):
    """A kind of heterogeneity."""

    name: str
    title: str
    lines: dict[str, tuple[str, str]]
    """Group and algorithm of each line; the last is ours."""


KINDS = (
    Kind(
        "alike",
        "clients alike",
        {
            "FedAvg": ("alike", BASE),
            "FedKL": ("alike-plain", "fedkl"),
            "anchored": ("alike-plain", OURS),
            "weighted anchors": ("alike-weighted", OURS),
        },
    ),
    Kind(
        "init-state",
        "initial states differ",
        {
            "FedAvg": ("different", BASE),
            "FedKL": ("different", "fedkl"),
            "anchored": ("different", OURS),
            "weighted anchors": ("init-state-weighted", OURS),
        },
    ),
    *(
        Kind(
            name,
            title,
            {
                "FedAvg": (name, BASE),
                "FedKL": (name, "fedkl"),
                "FedAvg, personal bias": (f"{name}-personal", BASE),
                "weighted anchors, personal bias": (f"{name}-weighted", OURS),
            },
        )
        for name, title in (("dynamics", "dynamics differ"), ("both", "both differ"))
    ),
)


class Found(NamedTuple):
    """The curves of a kind that have been run, by line, and the worst client's of ours."""

    kind: Kind
    curves: dict[str, CaseCurves]
    worst: CaseCurves | None

    @property
    def base(self) -> CaseCurves | None:
        return self.curves.get("FedAvg")

    @property
    def ours(self) -> CaseCurves | None:
        return self.curves.get([*self.kind.lines][-1])


def judge_anchors(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """The cost where clients are alike, and the share of the price that is won back elsewhere."""
    found = [_found(kind, experiment, runs) for kind in KINDS]
    top = found[0].base
    rows: list[dict[str, Any]] = []
    lines = []
    for one in found:
        for line, curves in one.curves.items():
            share = _share(top, one.base, curves) if one is not found[0] else None
            final = estimate(curves.finals())
            rows.append(
                {
                    "clients": one.kind.name,
                    "algorithm": line,
                    "seeds": len(curves.seeds),
                    "final_return": final.value,
                    "mean_return": float(iqm(curves.values.mean(axis=1))),
                    "won_back": None if share is None else share.value,
                }
            )
            said = "" if share is None else interval_text(share, 2)
            lines.append([one.kind.title, line, f"{len(curves.seeds)}", interval_text(final), said])
    head = ["clients", "algorithm", "seeds", "final return", "share of the price won back"]
    judged = [_alike(found[0]), _init_state(top, found[1]), *(_won(top, f) for f in found[2:])]
    return ExperimentResult(rows, lambda: _draw(found), f"{table(head, lines)}\n", judged)


def _found(kind: Kind, experiment: Experiment, runs: Runs) -> Found:
    def of(quantity: str) -> dict[str, CaseCurves]:
        each = {
            line: curves_of(experiment, runs, group, quantity).get(algorithm)
            for line, (group, algorithm) in kind.lines.items()
        }
        return {line: curves for line, curves in each.items() if curves is not None}

    return Found(kind, of("return_mean"), of("return_min").get([*kind.lines][-1]))


def _share(top: CaseCurves | None, base: CaseCurves | None, own: CaseCurves) -> Estimate | None:
    if top is None or base is None or own is base:
        return None
    return won_back(top.finals(), base.finals(), own.finals())


def _alike(found: Found) -> Verdict:
    """Both differences to FedAvg are above -COST."""
    if found.base is None or found.ours is None:
        return _open(found)
    parts = {
        "over all rounds": difference(
            found.ours.values.mean(axis=1), found.base.values.mean(axis=1)
        ),
        "at the end": difference(found.ours.finals(), found.base.finals()),
    }
    said = ", ".join(f"{interval_text(e)} {where}" for where, e in parts.items())
    judged = together([verdict(e.above(-COST)) for e in parts.values()])
    return Verdict("alike", judged, f"less FedAvg: {said}.")


def _init_state(top: CaseCurves | None, found: Found) -> Verdict:
    """The share is above 0.8, every round from AHEAD_FROM on is above FedAvg's, and so is the worst
    client above WORST."""
    share = None if found.ours is None else _share(top, found.base, found.ours)
    if share is None or found.base is None or found.ours is None or found.worst is None:
        return _open(found)
    length = min(found.base.values.shape[1], found.ours.values.shape[1])
    ahead = iqm(found.ours.values[:, :length]) - iqm(found.base.values[:, :length])
    behind = np.flatnonzero(ahead <= 0)
    first = 1 if not behind.size else int(behind[-1]) + 2
    worst = estimate(found.worst.finals())
    few = min(len(found.base.seeds), len(found.ours.seeds)) < 2
    early = OPEN if few else HOLDS if first <= AHEAD_FROM else FAILS
    said = f"ahead of FedAvg from round {first} on"
    if first > length:
        said = "not ahead of FedAvg in the last round"
    judged = together([verdict(share.above(0.8)), early, verdict(worst.above(WORST))])
    return Verdict(
        "init-state",
        judged,
        f"share {interval_text(share, 2)}; {said}; worst client {interval_text(worst)}.",
    )


def _won(top: CaseCurves | None, found: Found) -> Verdict:
    share = None if found.ours is None else _share(top, found.base, found.ours)
    if share is None:
        return _open(found)
    personal = found.curves.get("FedAvg, personal bias")
    beside = None if personal is None else _share(top, found.base, personal)
    alone = "" if beside is None else f"; FedAvg with the bias {interval_text(beside, 2)}"
    said = f"share of the price won back {interval_text(share, 2)}{alone}."
    return Verdict(found.kind.name, verdict(share.above(0.7)), said)


def _open(found: Found) -> Verdict:
    return Verdict(found.kind.name, OPEN, "the runs are not there yet.")


def _draw(found: Sequence[Found]) -> Figure:
    """Draw a pair of axes for each kind: thin lines are seeds, thick ones their IQM."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 6.3), layout="constrained")
    listed: dict[str, Any] = {}
    for number, one in enumerate(found, 1):
        axes = figure.add_subplot(2, 2, number)
        for line, curves in one.curves.items():
            colour, dashes = LINES[line]
            x = np.arange(1, curves.values.shape[1] + 1)
            for values in curves.values:
                axes.plot(x, values, color=colour, ls=dashes, lw=0.5, alpha=0.35)
            axes.plot(x, iqm(curves.values), color=colour, ls=dashes, lw=1.8)
            listed.setdefault(line, axes.get_lines()[-1])
        axes.set_title(one.kind.title, size=10, loc="left")
        axes.set_xlabel("round")
        axes.set_ylabel("mean return")
        axes.tick_params(length=0)
        round_ticks(axes, 6)
    figure.legend([*listed.values()], [*listed], loc="outside upper left", ncols=3)
    return figure
