"""Learning curves of an experiment's cases, and a figure of them in the paper's axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.experiments.reproduce.experiment import Case, Experiment, Rows, Runs
from fedkl.experiments.reproduce.results import column, gave_up
from fedkl.report.labels import ALONE, CENTRALISED
from fedkl.report.lines import round_ticks
from fedkl.report.statistics import FloatArray, estimate, final_window, iqm
from fedkl.report.style import MUTED, REFERENCES, colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

NAMES = {
    "fedkl": "FedKL",
    "fedkl-anchored": "anchored FedKL",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fmarl": "FMARL",
    "scaffold": "SCAFFOLD",
    "alone": ALONE,
    "centralised": CENTRALISED,
}
"""Of algorithms and references, as people write them."""


class CaseCurves(NamedTuple):
    """A quantity of a case in every round: a row for each seed."""

    case: Case
    seeds: list[int]
    values: FloatArray

    @property
    def name(self) -> str:
        """Of the algorithm or the reference, as people write it."""
        return NAMES.get(self.case.kind, self.case.kind)

    def finals(self) -> FloatArray:
        """The mean over the last tenth of the rounds, of each seed."""
        return self.values[:, -final_window(self.values.shape[1]) :].mean(axis=1)

    def rounds_to(self, target: float) -> FloatArray:
        """The first round in which each seed has a value; all its rounds if it never has."""
        reached = self.values >= target
        length = self.values.shape[1]
        return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, length).astype(np.float64)

    def summary(self) -> dict[str, Any]:
        """Return a table's row for a case: how many runs, and how they ended."""
        final = estimate(self.finals())
        return {
            "algorithm": self.case.kind,
            "seeds": len(self.seeds),
            "rounds": self.values.shape[1],
            "final_return": final.value,
            "final_low": final.low,
            "final_high": final.high,
            "best_return": float(self.values.max(axis=1).mean()),
        }


def curves_of(
    experiment: Experiment, runs: Runs, group: str, quantity: str = "return_mean"
) -> dict[str, CaseCurves]:
    """The curves of a group's cases that have been run, by algorithm or reference; a run that gave
    up stays where it was.

    Args:
        experiment: whose.
        runs: the tables.
        group: which group.
        quantity: a column of the tables.
    """
    return {
        case.kind: case_curves(case, runs[case.name], quantity)
        for case in experiment.cases
        if case.group == group and runs.get(case.name)
    }


def case_curves(case: Case, runs: Mapping[int, Rows], quantity: str = "return_mean") -> CaseCurves:
    seeds = sorted(runs)
    length = max(case.rounds if gave_up(rows, case) else len(rows) for rows in runs.values())
    values = np.stack([_filled(runs[seed], quantity, length) for seed in seeds])
    return CaseCurves(case, seeds, values)


def _filled(rows: Rows, quantity: str, length: int) -> FloatArray:
    """A column, each gap filled with what was before it, and the end with the last.

    Where no return was finite, it counts as the lowest that the run had.
    """
    values = column(rows, quantity)
    known = np.flatnonzero(~np.isnan(values))
    if quantity == "return_mean" and known.size:
        lost = np.isnan(values) & (column(rows, "unevaluated") > 0)
        values = np.where(lost, np.nanmin(values), values)
    if not known.size:
        return np.full(length, np.nan)
    at = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(len(values))))
    filled = values[np.maximum(at, known[0])]
    return np.concatenate([filled, np.full(length - len(filled), filled[-1])])


def groups_of(experiment: Experiment, runs: Runs) -> dict[str, str]:
    """The groups that have been run, with their titles."""
    return {case.group: case.title for case in experiment.cases if runs.get(case.name)}


class Panel(NamedTuple):
    """One pair of axes with curves."""

    title: str
    curves: Sequence[CaseCurves]


def draw_curves(panels: Sequence[Panel], ylabel: str, marks: Iterable[float] = ()) -> Figure:
    """Draw curves in the paper's axes: thin lines are seeds, thick ones their IQM.

    The axis begins where the lowest case began: what fell deeper leaves the picture, and is named.

    Args:
        panels: a pair of axes each.
        ylabel: of all.
        marks: values to mark across.
    """
    from matplotlib.figure import Figure

    every = [curves for panel in panels for curves in panel.curves]
    across = 1 if len(panels) == 1 else 2
    down = -(-len(panels) // across)
    figure = Figure(figsize=(5.6 if across == 1 else 9.2, 2.9 * down + 0.5), layout="constrained")
    shades = colours(c.name if c.case.reference else c.case.algorithm for c in every)
    floor = min(float(np.median(c.values[:, 0])) for c in every)
    ceiling = max(float(c.values.max()) for c in every)
    margin = 0.04 * (ceiling - floor)
    listed: dict[str, Line2D] = {}
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(down, across, number)
        for curves in panel.curves:
            _draw(axes, curves, shades)
            listed.setdefault(curves.name, axes.get_lines()[-1])
        for mark in marks:
            axes.axhline(mark, color=MUTED, lw=0.8, ls=":")
        lowest = min(float(c.values.min()) for c in panel.curves)
        axes.set_ylim(floor - margin, ceiling + margin)
        title = panel.title
        if lowest < floor - margin:
            title += f" (lowest: {lowest:.4g})"
        axes.set_title(title, size=10, loc="left")
        axes.set_xlabel("round")
        axes.set_ylabel(ylabel)
        axes.tick_params(length=0)
        round_ticks(axes, 6)
    handles, names = list(listed.values()), list(listed)
    figure.legend(handles, names, loc="outside upper left", ncols=len(names))
    return figure


def _draw(axes: Axes, curves: CaseCurves, shades: Mapping[str, str]) -> None:
    x = np.arange(1, curves.values.shape[1] + 1)
    if curves.case.reference:
        colour, dashes = REFERENCES[curves.name]
        middle = iqm(curves.values)
        axes.plot(x, middle, color=colour, ls=dashes, lw=1.3, label=curves.name)
        return
    colour = shades[curves.case.algorithm]
    for values in curves.values:
        axes.plot(x, values, color=colour, lw=0.6, alpha=0.45)
    axes.plot(x, iqm(curves.values), color=colour, lw=1.8, label=curves.name)
