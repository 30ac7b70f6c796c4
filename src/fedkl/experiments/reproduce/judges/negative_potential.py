"""Fig. 5: does training slow down where G < 0 for a selected client?

A round is marked if G was below 0, before it, for a client that was then selected, or, as in the
authors' figure, if the sum over the selected clients was. Gains of rounds are compared with those
of other rounds of the same stage of the same run, because both gains and G shrink while training
goes on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.experiments.reproduce.experiment import (
    OPEN,
    Experiment,
    ExperimentResult,
    Rows,
    Runs,
    Verdict,
)
from fedkl.experiments.reproduce.statistics import (
    STAGE,
    correlation,
    stages,
    verdict,
    within_stages,
)
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.statistics import Estimate, FloatArray, IntArray, resampled
from fedkl.report.style import BLUE, INK, MUTED, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FIRST_GAIN = 2
"""The first round has nothing before it to be compared with."""


class RoundMark(NamedTuple):
    """The mark of a round, if it is below 0."""

    name: str
    quantity: str
    """A column of the tables."""
    ranked: str
    """The column whose ranks are compared with those of gains."""


_POTENTIAL, _ALIGNMENT = "selected_learning_potential", "selected_alignment"
MARKS = (
    RoundMark("G < 0 for a selected client", f"{_POTENTIAL}_least", f"{_POTENTIAL}_mean"),
    RoundMark("sum of the selected clients' G < 0", f"{_POTENTIAL}_sum", f"{_POTENTIAL}_sum"),
    RoundMark("alignment < 0 for a selected client", f"{_ALIGNMENT}_least", f"{_ALIGNMENT}_mean"),
)
_SEEN = (_POTENTIAL, _ALIGNMENT)


def judge_negative_potential(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """Judge the gain of rounds with and without a mark."""
    cases = [case for case in experiment.cases if runs.get(case.name)]
    rows: list[dict[str, Any]] = []
    texts, verdicts, drawn = [], [], []
    for case in cases:
        own = [
            {"case": case.group, "seed": seed} | row
            for seed, table_rows in runs[case.name].items()
            for row in _rounds(table_rows)
        ]
        texts.append(f"With {case.title}:\n\n{_text(own)}")
        verdicts.append(_slows(own))
        drawn.append(own)
        rows += own
    return ExperimentResult(rows, partial(_figure, drawn[0]), "\n".join(texts), verdicts[:1])


def _rounds(table_rows: Rows) -> list[dict[str, Any]]:
    """Return what was known of the selected clients before each round, and what it gained."""
    result: list[dict[str, Any]] = []
    before = None
    for record in table_rows:
        after = record["return_mean"]
        row: dict[str, Any] = {"round": record["round"], "return_mean": after, "gain": None}
        if before is not None and after is not None:
            row["gain"] = after - before
        for name in _SEEN:
            for how in ("mean", "least", "sum"):
                row[f"{name}_{how}"] = record[f"{name}_{how}"]
        result.append(row)
        before = after
    return result


def _usable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep rounds of which both sides are known; the first has nothing before it."""
    return [row for row in rows if None not in row.values()]


def _column(rows: list[dict[str, Any]], name: str) -> FloatArray:
    return np.array([row[name] for row in rows], np.float64)


def _stages(rows: list[dict[str, Any]]) -> IntArray:
    return stages([row["seed"] for row in rows], [row["round"] for row in rows], _FIRST_GAIN)


def gap(gain: FloatArray, marked: FloatArray, stage: IntArray) -> float:
    """Return how much more marked rounds gain than others of their stage, on average; NaN: none
    compare.

    A stage counts by how well its two means are known, if all gains vary alike.

    Example:
        The second stage has one round of each kind, and the first has no mark.

        >>> gap(np.array([9.0, 8.0, 2.0, 1.0]), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))
        -1.0
    """
    total = weight = 0.0
    for one in np.unique(stage):
        here, there = (gain[(stage == one) & (marked == m)] for m in (1, 0))
        if len(here) and len(there):
            known = len(here) * len(there) / (len(here) + len(there))
            total += known * float(here.mean() - there.mean())
            weight += known
    return total / weight if weight else float("nan")


def _gap_of(gain: FloatArray, marked: FloatArray, stage: IntArray, rows: IntArray) -> float:
    return gap(gain[rows], marked[rows], stage[rows])


def _correlation_of(x: FloatArray, y: FloatArray, rows: IntArray) -> float:
    return correlation(x[rows], y[rows])


def _gains(gain: FloatArray, marked: FloatArray) -> list[str]:
    """Mean gains of marked rounds and of others."""
    return [f"{gain[marked == m].mean():.3g}" if (marked == m).any() else "-" for m in (1, 0)]


def _marked(rounds: list[dict[str, Any]], mark: RoundMark) -> FloatArray:
    return (_column(rounds, mark.quantity) < 0).astype(np.float64)


def _difference(rounds: list[dict[str, Any]], mark: RoundMark) -> Estimate:
    """Return how much more marked rounds gain than others of their stage."""
    gain, stage = _column(rounds, "gain"), _stages(rounds)
    return resampled(partial(_gap_of, gain, _marked(rounds, mark), stage), stage)


def _slows(rows: list[dict[str, Any]]) -> Verdict:
    rounds = _usable(rows)
    if len(rounds) < 2:
        return Verdict("slows", OPEN, "too few rounds to compare.")
    gain, marked = _column(rounds, "gain"), _marked(rounds, MARKS[0])
    apart = _difference(rounds, MARKS[0])
    slower = Estimate(
        -apart.value,
        None if apart.high is None else -apart.high,
        None if apart.low is None else -apart.low,
    )
    here, there = _gains(gain, marked)
    return Verdict(
        "slows",
        verdict(slower),
        f"marked rounds gain {here}, the others {there}; within {STAGE} rounds of a seed the "
        f"difference is {interval_text(apart, 2)}.",
    )


def _text(rows: list[dict[str, Any]]) -> str:
    rounds = _usable(rows)
    if len(rounds) < 2:
        return "Too few rounds to compare.\n"
    gain, stage = _column(rounds, "gain"), _stages(rounds)
    gain_ranks = within_stages(gain, stage)
    late = _column(rounds, "round") >= _FIRST_GAIN + STAGE
    lines = []
    for mark in MARKS:
        marked = _marked(rounds, mark)
        ranks = within_stages(_column(rounds, mark.ranked), stage)
        together = resampled(partial(_correlation_of, ranks, gain_ranks), stage)
        lines.append(
            [
                mark.name,
                f"{int(marked.sum())} of {len(rounds)}",
                *_gains(gain, marked),
                " and ".join(_gains(gain[late], marked[late])),
                interval_text(_difference(rounds, mark)),
                interval_text(together, 2),
            ]
        )
    head = [
        "mark",
        "rounds marked",
        "gain of marked rounds",
        "of the others",
        f"both after the first {STAGE} rounds",
        f"difference within {STAGE} rounds of a seed",
        "rank correlation with the gain",
    ]
    return (
        "A gain is the mean return over all clients after a round minus that before it. In "
        "brackets: 95 % bootstrap intervals over rounds, drawn again within their stage.\n\n"
        f"{table(head, lines)}\n"
    )


def _figure(rows: list[dict[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    seeds = sorted({row["seed"] for row in rows})
    figure = Figure(figsize=(9.6, max(4.4, 1.5 * len(seeds) + 0.8)), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[3, 2])[0]
    curves = left.subplots(len(seeds), 1, sharex=True, squeeze=False)[:, 0]
    for axes, seed in zip(curves, seeds, strict=True):
        _curve(axes, [row for row in rows if row["seed"] == seed])
        axes.set_ylabel(f"return, seed {seed}")
    curves[0].legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)
    curves[-1].set_xlabel("round")
    rounds = _usable(rows)
    stage = _stages(rounds)
    right.suptitle(f"among {STAGE} rounds of a seed", size=9.5)
    scatters = right.subplots(2, 1, sharey=True)
    for axes, quantity, name in zip(scatters, _SEEN, ("G", "alignment"), strict=True):
        x = within_stages(_column(rounds, f"{quantity}_mean"), stage)
        y = within_stages(_column(rounds, "gain"), stage)
        marked = _column(rounds, f"{quantity}_least") < 0
        axes.scatter(x, y, s=9, c=np.where(marked, VERMILLION, BLUE), linewidths=0, alpha=0.7)
        axes.axhline(0, color=MUTED, lw=0.8)
        axes.axvline(0, color=MUTED, lw=0.8)
        axes.set_xlabel(f"rank of the mean {name} of the selected")
        axes.set_ylabel("rank of the gain")
    return figure


def _curve(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A curve of returns, and a line for each marked round."""
    known = [row for row in rows if row["return_mean"] is not None]
    marked = [row["round"] for row in rows if (row["selected_learning_potential_least"] or 0) < 0]
    for i, round in enumerate(marked):
        label = "G < 0 for a selected client" if i == 0 else None
        axes.axvline(round, color=VERMILLION, lw=0.7, alpha=0.6, label=label)
    x, y = _column(known, "round"), _column(known, "return_mean")
    axes.plot(x, y, color=INK, lw=1.4, label="mean return after the round")
