"""The paper's Fig. effect_neg_da-b: does training slow down where G < 0 for a selected client?

A round is marked if G was below 0, before it, for a client that was then selected. Gains of rounds
are compared with those of other rounds of the same stage of the same run, because both gains and G
shrink while training goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from fedkl.report.statistics import FloatArray, IntArray, resampled
from fedkl.report.style import BLUE, INK, MUTED, VERMILLION
from fedkl.reproduce.experiment import Case, Experiment, Finding, Log, Logs
from fedkl.reproduce.text import interval_text, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STAGE = 10
"""Rounds that count as one stage of training."""
_FIRST_GAIN = 2
"""The first round has nothing before it to be compared with."""
_SIGNS = {"learning_potential": "G", "alignment": "alignment"}
CASES = {
    "noise-0.4": Case(
        "action noise 0.4",
        "reacher-dynamics",
        {"heterogeneity.every": 1, "evaluation.every": 1, "evaluation.episodes": 50},
    )
}


def judge(logs: Logs, labels: Mapping[str, str]) -> Finding:
    """What rounds gained, with and without a mark."""
    (by_seed,) = logs.values()
    rows = [{"seed": seed} | row for seed, log in by_seed.items() for row in _rounds(log)]
    return Finding(rows, lambda: _figure(rows), _text(rows))


def _rounds(log: Log) -> list[dict[str, Any]]:
    """What was known of the selected clients before each round, and what it gained."""
    result: list[dict[str, Any]] = []
    before = None
    for record in log:
        after = record["return_mean"]
        row = {"round": record["round"], "return_mean": after, "gain": None}
        if before is not None and after is not None:
            row["gain"] = after - before
        chosen = [
            one for one in record["heterogeneity"] or [] if one["client"] in record["selected"]
        ]
        for quantity in _SIGNS:
            values = [one[quantity] for one in chosen]
            row[f"{quantity}_mean"] = float(np.mean(values)) if values else None
            row[f"{quantity}_least"] = min(values) if values else None
        result.append(row)
        before = after
    return result


def _usable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds of which both sides are known; the first has nothing before it."""
    return [row for row in rows if None not in row.values()]


def _column(rows: list[dict[str, Any]], name: str) -> FloatArray:
    return np.array([row[name] for row in rows], np.float64)


def stages(rows: list[dict[str, Any]]) -> IntArray:
    """Which stage of which seed's training each round belongs to, as a number.

    Example:
        >>> rows = [{"seed": 3, "round": t} for t in (2, 11, 12)] + [{"seed": 4, "round": 2}]
        >>> stages(rows).tolist()
        [0, 0, 1, 2]
    """
    of_each = [(row["seed"], (row["round"] - _FIRST_GAIN) // STAGE) for row in rows]
    numbers = {stage: number for number, stage in enumerate(sorted(set(of_each)))}
    return np.array([numbers[stage] for stage in of_each], np.int64)


def gap(gain: FloatArray, marked: FloatArray, stage: IntArray) -> float:
    """How much more marked rounds gain than others of their stage, on average; NaN: none compare.

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


def within_stages(values: FloatArray, stage: IntArray) -> FloatArray:
    """Ranks among the rounds of a stage, from -1 to 1.

    Example:
        >>> within_stages(np.array([5.0, 9.0, 7.0, 0.0]), np.array([0, 0, 0, 1])).tolist()
        [-1.0, 1.0, 0.0, 0.0]
    """
    result = np.zeros(len(values))
    for one in np.unique(stage):
        here = stage == one
        n = int(here.sum())
        if n > 1:
            result[here] = 2 * (rankdata(values[here]) - 1) / (n - 1) - 1
    return result


def correlation(x: FloatArray, y: FloatArray) -> float:
    """Of two columns of ranks; NaN if one does not vary."""
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size else float("nan")


def _gap_of(gain: FloatArray, marked: FloatArray, stage: IntArray, rows: IntArray) -> float:
    return gap(gain[rows], marked[rows], stage[rows])


def _correlation_of(x: FloatArray, y: FloatArray, rows: IntArray) -> float:
    return correlation(x[rows], y[rows])


def _gains(gain: FloatArray, marked: FloatArray) -> list[str]:
    """Mean gains of marked rounds and of others."""
    return [f"{gain[marked == m].mean():.3g}" if (marked == m).any() else "-" for m in (1, 0)]


def _text(rows: list[dict[str, Any]]) -> str:
    rounds = _usable(rows)
    if len(rounds) < 2:
        return "Too few rounds to compare.\n"
    gain, stage = _column(rounds, "gain"), stages(rounds)
    gain_ranks = within_stages(gain, stage)
    late = _column(rounds, "round") >= _FIRST_GAIN + STAGE
    lines, ranks, marks, later = [], {}, {}, []
    for quantity, name in _SIGNS.items():
        marked = (_column(rounds, f"{quantity}_least") < 0).astype(np.float64)
        marks[quantity] = marked
        ranks[quantity] = within_stages(_column(rounds, f"{quantity}_mean"), stage)
        means = _gains(gain, marked)
        later.append(f"{' and '.join(_gains(gain[late], marked[late]))} ({name})")
        apart = resampled(partial(_gap_of, gain, marked, stage), stage)
        together = resampled(partial(_correlation_of, ranks[quantity], gain_ranks), stage)
        lines.append(
            [
                f"{name} < 0 for a selected client",
                f"{int(marked.sum())} of {len(rounds)}",
                *means,
                interval_text(apart),
                interval_text(together, 2),
            ]
        )
    better = resampled(
        lambda rows: (
            _correlation_of(ranks["alignment"], gain_ranks, rows)
            - _correlation_of(ranks["learning_potential"], gain_ranks, rows)
        ),
        stage,
    )
    wider = resampled(
        lambda rows: (
            _gap_of(gain, marks["alignment"], stage, rows)
            - _gap_of(gain, marks["learning_potential"], stage, rows)
        ),
        stage,
    )
    head = [
        "mark",
        "rounds marked",
        "gain of marked rounds",
        "of the others",
        f"difference within {STAGE} rounds of a seed",
        "rank correlation of the selected clients' mean with the gain",
    ]
    return (
        "A gain is the mean return over all clients after a round minus that before it. In "
        "brackets: 95 % bootstrap intervals over rounds, drawn again within their stage.\n\n"
        f"{table(head, lines)}\n\n"
        f"After the first {STAGE} rounds with a gain, marked rounds and others gain "
        f"{', '.join(later)}.\n"
        "Difference by the mark of the alignment minus that by the mark of G: "
        f"{interval_text(wider, 2)}.\n"
        "Rank correlation of the alignment minus that of G: "
        f"{interval_text(better, 2)}.\n"
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
    stage = stages(rounds)
    right.suptitle(f"among {STAGE} rounds of a seed", size=9.5)
    scatters = right.subplots(2, 1, sharey=True)
    for axes, (quantity, name) in zip(scatters, _SIGNS.items(), strict=True):
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
    marked = [row["round"] for row in rows if (row["learning_potential_least"] or 0) < 0]
    for i, round in enumerate(marked):
        label = "G < 0 for a selected client" if i == 0 else None
        axes.axvline(round, color=VERMILLION, lw=0.7, alpha=0.6, label=label)
    x, y = _column(known, "round"), _column(known, "return_mean")
    axes.plot(x, y, color=INK, lw=1.4, label="mean return after the round")


NEGATIVE_POTENTIAL = Experiment(
    "negative-potential",
    "training with action noise 0.4, and the rounds in which G < 0 for a selected client",
    CASES,
    100,
    judge,
)
