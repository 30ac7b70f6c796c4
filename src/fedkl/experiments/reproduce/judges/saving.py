"""Savings in communication and their cost: a critic that stays on its client, regions that report
now and then. Return against bytes through the global server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.experiments.reproduce.experiment import OPEN, Experiment, ExperimentResult, Runs, Verdict
from fedkl.experiments.reproduce.judges.curves import CaseCurves, curves_of, groups_of
from fedkl.experiments.reproduce.statistics import together, verdict
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.statistics import FloatArray, difference, estimate, iqm
from fedkl.report.style import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = ("-", "--", ":")
_MARGIN = 0.05
"""The share of the gain in return that may be lost by what still counts as good."""


class FederationKind(NamedTuple):
    """Returns of one kind of federation, and the bytes that it sent, by algorithm."""

    title: str
    preset: str
    returns: dict[str, CaseCurves]
    sent: dict[str, FloatArray]
    """Through the global server in both directions, up to every round."""


def judge_saving(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """Judge what the later groups of a preset save beside the first, and what it costs them."""
    kinds = [_kind(experiment, runs, *group) for group in groups_of(experiment, runs).items()]
    rows = [_row(kind, algorithm) for kind in kinds for algorithm in kind.returns]
    head = ["federation", "algorithm", "seeds", "final return", "megabytes"]
    lines = [
        [
            kind.title,
            curves.name,
            f"{len(curves.seeds)}",
            interval_text(estimate(curves.finals())),
            f"{kind.sent[algorithm][:, -1].mean() / 1e6:.3g}",
        ]
        for kind in kinds
        for algorithm, curves in kind.returns.items()
    ]
    return ExperimentResult(
        rows, partial(_figure, kinds), f"{table(head, lines)}\n", [_saves(kinds)]
    )


def _kind(experiment: Experiment, runs: Runs, group: str, title: str) -> FederationKind:
    def sums(*columns: str) -> dict[str, FloatArray]:
        found = [curves_of(experiment, runs, group, column) for column in columns]
        return {a: np.cumsum(sum(one[a].values for one in found), axis=1) for a in found[0]}

    direct, regions = sums("bytes_down", "bytes_up"), sums("bytes_down_regions", "bytes_up_regions")
    # Where there are regions, clients talk to these, and only these to the global server.
    sent = {a: regions[a] if regions[a].any() else direct[a] for a in direct}
    returns = curves_of(experiment, runs, group)
    return FederationKind(title, next(iter(returns.values())).case.preset, returns, sent)


def _row(kind: FederationKind, algorithm: str) -> dict[str, Any]:
    curves = kind.returns[algorithm]
    return {
        "federation": kind.title,
        "algorithm": algorithm,
        "seeds": len(curves.seeds),
        "final_return": estimate(curves.finals()).value,
        "bytes": float(kind.sent[algorithm][:, -1].mean()),
    }


def _saves(kinds: list[FederationKind]) -> Verdict:
    parts, said = [], []
    pairs = [(some[0], other) for some in _by_preset(kinds).values() for other in some[1:]]
    for first, other in pairs:
        for a in (a for a in first.returns if a in other.returns):
            one, two = first.returns[a], other.returns[a]
            saved = 1 - other.sent[a][:, -1].mean() / first.sent[a][:, -1].mean()
            allowed = _MARGIN * float((one.finals() - one.values[:, 0]).mean())
            parts.append(verdict(difference(two.finals() + allowed, one.finals())))
            said.append(
                f"{one.name}, {other.title}: {100 * saved:.0f} % fewer bytes, and the final return "
                f"changes by {interval_text(difference(two.finals(), one.finals()))}"
            )
    if not parts:
        return Verdict("saves", OPEN, "the runs are not there yet.")
    return Verdict("saves", together(parts), f"{'; '.join(said)}.")


def _by_preset(kinds: list[FederationKind]) -> dict[str, list[FederationKind]]:
    """Group federations of the same clients."""
    return {p: [k for k in kinds if k.preset == p] for p in dict.fromkeys(k.preset for k in kinds)}


def _figure(kinds: list[FederationKind]) -> Figure:
    from matplotlib.figure import Figure

    presets = _by_preset(kinds)
    figure = Figure(figsize=(5.6, 3.4 * len(presets)), layout="constrained")
    shades = colours(dict.fromkeys(a for kind in kinds for a in kind.returns))
    for number, some in enumerate(presets.values(), 1):
        _draw(figure.add_subplot(len(presets), 1, number), some, shades)
    return figure


def _draw(axes: Axes, kinds: list[FederationKind], shades: Mapping[str, str]) -> None:
    for kind, style in zip(kinds, _STYLES, strict=False):
        for a, curves in kind.returns.items():
            axes.plot(
                kind.sent[a].mean(axis=0) / 1e6,
                iqm(curves.values),
                color=shades[a],
                ls=style,
                label=f"{curves.name}, {kind.title}",
            )
    axes.set_xlabel("megabytes through the global server, in both directions")
    axes.set_ylabel("mean return")
    axes.tick_params(length=0)
    axes.legend(fontsize=8.5)
