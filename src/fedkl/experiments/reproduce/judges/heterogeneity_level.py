"""Fig. 4: G while training, in four federations of Reacher."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkl.core.errors import UserError
from fedkl.core.text import counted
from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult, Runs, Verdict
from fedkl.experiments.reproduce.statistics import together, verdict
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.lines import plain_ticks
from fedkl.report.statistics import FloatArray, difference, estimate
from fedkl.report.style import BLUE, GREEN, INK, ORANGE, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (BLUE, GREEN, ORANGE, VERMILLION)
OURS = "ours-"
"""What the groups with our learner begin with; the others have the paper's."""
_QUANTITIES = ("advantage", "heterogeneity", "learning_potential", "alignment", "share_below_0")
_DRAWN = ("learning_potential", "advantage", "heterogeneity")


def judge_heterogeneity_level(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """G of each round, averaged over clients.

    Raises:
        UserError: of some case, no round was measured in every seed.
    """
    cases = [case for case in experiment.cases if runs.get(case.name)]
    rows = [
        {"case": case.group, "seed": seed, "round": row["round"]}
        | {name: row[name] for name in (*_QUANTITIES, "return_mean")}
        for case in cases
        for seed, table_rows in runs[case.name].items()
        for row in table_rows
        if row["learning_potential"] is not None
    ]
    for case in cases:
        if not _measured(rows, case.group, [*runs[case.name]]):
            raise UserError(f"no round of {case.name} was measured in every seed")
    learners = {
        learner: {c.group: c.title for c in cases if c.group.startswith(OURS) == ours}
        for learner, ours in (("the paper's learner", False), ("our learner", True))
    }
    learners = {learner: labels for learner, labels in learners.items() if labels}
    text = "\n".join(_text(rows, learner, labels) for learner, labels in learners.items())
    main = next(iter(learners.values()))
    verdicts = [_falls(rows, main), _noise(rows, main)]
    return ExperimentResult(rows, partial(_figure, rows, learners), text, verdicts)


def _measured(rows: list[dict[str, Any]], case: str, seeds: list[int]) -> list[int]:
    of_each = [{r["round"] for r in rows if (r["case"], r["seed"]) == (case, s)} for s in seeds]
    return sorted(set.intersection(*of_each))


def _curves(
    rows: list[dict[str, Any]], case: str, *names: str
) -> tuple[list[int], list[FloatArray]]:
    """Return rounds, and by name the values in them: one row for each seed."""
    of_case = {(row["seed"], row["round"]): row for row in rows if row["case"] == case}
    seeds = sorted({seed for seed, _ in of_case})
    rounds = _measured(rows, case, seeds)
    return rounds, [
        np.array([[of_case[seed, round][name] for round in rounds] for seed in seeds])
        for name in names
    ]


def _early_late(rows: list[dict[str, Any]], case: str) -> tuple[FloatArray, FloatArray, int]:
    """G of each seed in the first and the last sixth of the measured rounds, and how many."""
    _, (g,) = _curves(rows, case, "learning_potential")
    window = max(1, g.shape[1] // 6)
    return g[:, :window].mean(axis=1), g[:, -window:].mean(axis=1), window


def _text(rows: list[dict[str, Any]], learner: str, labels: Mapping[str, str]) -> str:
    """Describe how G begins and ends."""
    lines, window = [], 1
    for case, label in labels.items():
        _, (da, db, below) = _curves(rows, case, "advantage", "heterogeneity", "share_below_0")
        first, last, window = _early_late(rows, case)
        ratio = [
            estimate(db[:, part].mean(axis=1) / da[:, part].mean(axis=1))
            for part in (slice(window), slice(-window, None))
        ]
        lines.append(
            [
                label,
                interval_text(estimate(first)),
                interval_text(estimate(last)),
                f"{np.sum(last < first)} of {len(first)}",
                *map(interval_text, ratio),
                f"{100 * below.mean():.0f} %",
            ]
        )
    head = [
        f"clients ({learner})",
        "G at first",
        "G at last",
        "seeds in which it fell",
        "‖DB‖/‖DA‖ at first",
        "at last",
        "clients and rounds with G < 0",
    ]
    return (
        "Means over all clients; IQM over seeds with a 95 % bootstrap interval. At first and at "
        f"last: {counted(window, 'measured round')} each.\n\n{table(head, lines)}\n"
    )


def _falls(rows: list[dict[str, Any]], labels: Mapping[str, str]) -> Verdict:
    parts, said = [], []
    for case, label in labels.items():
        first, last, _ = _early_late(rows, case)
        parts.append(verdict(estimate(first - last)))
        said.append(f"{label} from {estimate(first).value:.3g} to {estimate(last).value:.3g}")
    return Verdict("falls", together(parts), f"G goes, {', '.join(said)}.")


def _noise(rows: list[dict[str, Any]], labels: Mapping[str, str]) -> Verdict:
    if not {"noise-0.2", "noise-0.4"} <= labels.keys():
        return Verdict("noise", OPEN, "the runs are not there yet.")
    low, high = (_early_late(rows, case)[:2] for case in ("noise-0.2", "noise-0.4"))
    gaps = [difference(*pair) for pair in zip(low, high, strict=True)]
    return Verdict(
        "noise",
        together([verdict(gap) for gap in gaps]),
        f"G with noise 0.2 less G with 0.4: {interval_text(gaps[0])} at first, "
        f"{interval_text(gaps[1])} at last.",
    )


def _figure(rows: list[dict[str, Any]], learners: Mapping[str, Mapping[str, str]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4 if len(learners) == 1 else 10.4, 5.6), layout="constrained")
    panels = figure.subplots(
        2, len(learners), sharex=True, sharey="row", squeeze=False, height_ratios=[3, 2]
    )
    for (above, below), (learner, labels) in zip(panels.T, learners.items(), strict=True):
        _draw(above, below, rows, labels)
        above.set_title(learner, size=10, loc="left")
    panels[0, 0].set_ylabel("G = ‖DA‖ - ‖DB‖")
    panels[1, 0].set_ylabel("‖DB‖ / ‖DA‖")
    listed = panels[0, 0].get_legend_handles_labels()
    figure.legend(*listed, loc="outside upper left", ncols=4)
    return figure


def _draw(above: Axes, below: Axes, rows: list[dict[str, Any]], labels: Mapping[str, str]) -> None:
    drawn = []
    for (case, label), colour in zip(labels.items(), _COLOURS, strict=False):
        x, (g, da, db) = _curves(rows, case, *_DRAWN)
        drawn.append(g)
        above.fill_between(x, g.min(axis=0), g.max(axis=0), color=colour, alpha=0.15, lw=0)
        above.plot(x, g.mean(axis=0), color=colour, lw=1.6, label=label)
        below.plot(x, db.mean(axis=0) / da.mean(axis=0), color=colour, lw=1.4, label=label)
    # Over orders of magnitude, and linear where noise decides the sign.
    largest = max(float(abs(g).max()) for g in drawn)
    above.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(largest / 1000 or 1.0)))
    plain_ticks(above)
    above.axhline(0, color=INK, lw=0.8)
    below.axhline(1, color=INK, lw=0.8)
    below.set_ylim(-0.5, 1.5)
    below.set_xlabel("round, measured before it (lines: mean over seeds; bands: all seeds)")
