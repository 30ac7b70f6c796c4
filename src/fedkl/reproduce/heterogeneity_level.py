"""The paper's Fig. heterogeneity_level: G while training, in four federations of Reacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkl.errors import UserError
from fedkl.report.plotting import plain_ticks
from fedkl.report.statistics import FloatArray, difference, estimate
from fedkl.report.style import BLUE, GREEN, INK, ORANGE, VERMILLION
from fedkl.reproduce.experiment import Case, Experiment, Finding, Log, Logs
from fedkl.reproduce.text import interval_text, table
from fedkl.texts import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = (BLUE, GREEN, ORANGE, VERMILLION)
_MEASURE = {"heterogeneity.every": 1, "evaluation.every": 5}


def _noise(deviation: float) -> dict[str, Any]:
    return {"normal": [0.0, deviation], "clip": 1.0, "per": "client"}


CASES = {
    "iid": Case("all alike", "reacher-iid", _MEASURE),
    "init-state": Case("60 squares of targets", "reacher-init-state", _MEASURE),
    "noise-0.2": Case(
        "action noise 0.2",
        "reacher-dynamics",
        _MEASURE | {"world.clients.action_noise": _noise(0.2)},
    ),
    "noise-0.4": Case(
        "action noise 0.4",
        "reacher-dynamics",
        _MEASURE | {"world.clients.action_noise": _noise(0.4)},
    ),
}
_QUANTITIES = ("advantage", "heterogeneity", "learning_potential", "alignment")
_DRAWN = ("learning_potential", "advantage", "heterogeneity")


def judge(logs: Logs, labels: Mapping[str, str]) -> Finding:
    """G of each round, averaged over clients.

    Raises:
        UserError: of some case, no round was measured in every seed.
    """
    rows = [
        {"case": case, "seed": seed} | row
        for case, by_seed in logs.items()
        for seed, log in by_seed.items()
        for row in _rounds(log)
    ]
    for case, by_seed in logs.items():
        if not _measured(rows, case, [*by_seed]):
            raise UserError(f"no round of {case} was measured in every seed")
    return Finding(rows, lambda: _figure(rows, labels), _text(rows, labels))


def _rounds(log: Log) -> list[dict[str, Any]]:
    """Means over all clients that were measured."""
    result = []
    for record in log:
        measured = record["heterogeneity"]
        if not measured:
            continue
        means = {q: float(np.mean([one[q] for one in measured])) for q in _QUANTITIES}
        below = float(np.mean([one["learning_potential"] < 0 for one in measured]))
        result.append(
            {"round": record["round"]}
            | means
            | {"share_below_0": below, "return_mean": record["return_mean"]}
        )
    return result


def _measured(rows: list[dict[str, Any]], case: str, seeds: list[int]) -> list[int]:
    """The rounds that were measured in all of these seeds."""
    of_each = [{r["round"] for r in rows if (r["case"], r["seed"]) == (case, s)} for s in seeds]
    return sorted(set.intersection(*of_each))


def _curves(
    rows: list[dict[str, Any]], case: str, *names: str
) -> tuple[list[int], list[FloatArray]]:
    """Rounds, and for each name what it was in them: one row for each seed."""
    of_case = {(row["seed"], row["round"]): row for row in rows if row["case"] == case}
    seeds = sorted({seed for seed, _ in of_case})
    rounds = _measured(rows, case, seeds)
    return rounds, [
        np.array([[of_case[seed, round][name] for round in rounds] for seed in seeds])
        for name in names
    ]


def _text(rows: list[dict[str, Any]], labels: Mapping[str, str]) -> str:
    """How G begins and ends, and what the noise does to it."""
    lines = []
    early_late: dict[str, tuple[FloatArray, FloatArray]] = {}
    for case, label in labels.items():
        _, (g, da, db, below) = _curves(rows, case, *_DRAWN, "share_below_0")
        window = max(1, g.shape[1] // 6)
        first, last = g[:, :window].mean(axis=1), g[:, -window:].mean(axis=1)
        early_late[case] = first, last
        ratio = [
            estimate(db[:, part].mean(axis=1) / da[:, part].mean(axis=1))
            for part in (slice(window), slice(-window, None))
        ]
        lines.append(
            [
                label,
                interval_text(estimate(first)),
                interval_text(estimate(last)),
                f"{np.sum(last < first)} of {len(g)}",
                *map(interval_text, ratio),
                f"{100 * below.mean():.0f} %",
            ]
        )
    head = [
        "clients",
        "G at first",
        "G at last",
        "seeds in which it fell",
        "‖DB‖/‖DA‖ at first",
        "at last",
        "clients and rounds with G < 0",
    ]
    words = [
        "Means over all clients; IQM over seeds with a 95 % bootstrap interval. At first and at "
        f"last: {counted(window, 'measured round')} each.",
        "",
        table(head, lines),
    ]
    if {"noise-0.2", "noise-0.4"} <= early_late.keys():
        gaps = [
            interval_text(difference(high, low))
            for high, low in zip(early_late["noise-0.4"], early_late["noise-0.2"], strict=True)
        ]
        words += ["", f"G with noise 0.4 minus G with 0.2: {gaps[0]} at first, {gaps[1]} at last."]
    return "\n".join(words) + "\n"


def _figure(rows: list[dict[str, Any]], labels: Mapping[str, str]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    drawn = []
    for (case, label), colour in zip(labels.items(), _COLOURS, strict=True):
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
    above.set_ylabel("G = ‖DA‖ - ‖DB‖")
    below.set_ylabel("‖DB‖ / ‖DA‖")
    below.set_xlabel("round, measured before it (lines: mean over seeds; bands: all seeds)")
    above.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=8.5)
    return figure


HETEROGENEITY_LEVEL = Experiment(
    "heterogeneity-level",
    "G while training: clients alike, 60 squares, two levels of action noise",
    CASES,
    60,
    judge,
)
