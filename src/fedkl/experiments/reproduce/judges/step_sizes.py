"""Fig. 10: a map of the return over d_local and d_global, with and without the global penalty."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult, Runs, Verdict
from fedkl.experiments.reproduce.judges.curves import CaseCurves, case_curves
from fedkl.experiments.reproduce.statistics import collapses, together, verdict
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.statistics import difference, estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D_LOCAL, D_GLOBAL = "learner.d_local", "algorithm.d_global"
NONE = "none"
"""In the place of a d_global: no global penalty."""


def judge_step_sizes(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """Judge which steps end well, and which collapse."""
    cells: dict[tuple[float, float | str], CaseCurves] = {
        (case.grid[D_LOCAL], case.grid.get(D_GLOBAL, NONE)): case_curves(case, runs[case.name])
        for case in experiment.cases
        if runs.get(case.name)
    }
    rows = [_row(*at, curves) for at, curves in cells.items()]
    head = ["d_local", *(f"d_global {_name(g)}" for g in _globals(cells))]
    lines = [
        [
            f"{local:g}",
            *(_cell(cells.get((local, g))) for g in _globals(cells)),
        ]
        for local in _locals(cells)
    ]
    text = f"Final return, and in brackets the share of rounds collapsed.\n\n{table(head, lines)}\n"
    return ExperimentResult(rows, partial(_figure, cells), text, [_larger(cells)])


def _locals(cells: dict[tuple[float, float | str], CaseCurves]) -> list[float]:
    return sorted({local for local, _ in cells})


def _globals(cells: dict[tuple[float, float | str], CaseCurves]) -> list[float | str]:
    """No penalty first, then from the smallest to the largest."""
    return sorted({g for _, g in cells}, key=lambda g: -1.0 if isinstance(g, str) else g)


def _name(d_global: float | str) -> str:
    return d_global if isinstance(d_global, str) else f"{d_global:g}"


def _row(d_local: float, d_global: float | str, curves: CaseCurves) -> dict[str, Any]:
    fallen = [collapses(values) for values in curves.values]
    return {
        "d_local": d_local,
        "d_global": _name(d_global),
        "seeds": len(curves.seeds),
        "final_return": estimate(curves.finals()).value,
        "rounds_collapsed": float(np.mean([c.share for c in fallen])),
        "deepest": max(c.depth for c in fallen),
    }


def _cell(curves: CaseCurves | None) -> str:
    if curves is None:
        return "-"
    share = np.mean([collapses(values).share for values in curves.values])
    return f"{estimate(curves.finals()).value:.3g} ({100 * share:.0f} %)"


def _larger(cells: dict[tuple[float, float | str], CaseCurves]) -> Verdict:
    """At the largest d_local, does each d_global end above no penalty?"""
    local = max(_locals(cells), default=0.0)
    penalised = {g: c for (d, g), c in cells.items() if d == local and g != NONE}
    plain = cells.get((local, NONE))
    if plain is None or not penalised:
        return Verdict("larger", OPEN, "the runs are not there yet.")
    gaps = {g: difference(c.finals(), plain.finals()) for g, c in penalised.items()}
    said = ", ".join(f"d_global {_name(g)}: {interval_text(gap)}" for g, gap in gaps.items())
    return Verdict(
        "larger",
        together([verdict(gap) for gap in gaps.values()]),
        f"at d_local {local:g} the final return with the penalty less that without: {said}.",
    )


def _figure(cells: dict[tuple[float, float | str], CaseCurves]) -> Figure:
    from matplotlib.figure import Figure

    from fedkl.report.style import INK

    locals_, globals_ = _locals(cells), _globals(cells)
    finals = np.array(
        [
            [estimate(cells[d, g].finals()).value if (d, g) in cells else np.nan for d in locals_]
            for g in globals_
        ]
    )
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(visible=False)
    # Where everybody starts is as bad as anything: what fell deeper has the same colour.
    start = float(np.mean([c.values[:, 0].mean() for c in cells.values()]))
    image = axes.imshow(finals, cmap="viridis", vmin=start, aspect="auto")
    for row, column in np.argwhere(~np.isnan(finals)):
        dark = finals[row, column] < (start + np.nanmax(finals)) / 2
        axes.text(
            column,
            row,
            f"{finals[row, column]:.3g}",
            ha="center",
            va="center",
            color="white" if dark else INK,
        )
    axes.set_xticks(range(len(locals_)), [f"{d:g}" for d in locals_])
    axes.set_yticks(
        range(len(globals_)), ["no penalty" if g == NONE else _name(g) for g in globals_]
    )
    axes.set_xlabel("d_local")
    axes.set_ylabel("d_global")
    axes.tick_params(length=0)
    figure.colorbar(image, label="final return")
    return figure
