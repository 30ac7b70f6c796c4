"""The paper's future work: a critic that stays on its client. Return against bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkl.report.statistics import difference, estimate, iqm
from fedkl.report.style import colours
from fedkl.reproduce.experiment import OPEN, Experiment, Finding, Runs, Verdict
from fedkl.reproduce.judges.curves import Curves, curves_of
from fedkl.reproduce.statistics import together, verdict
from fedkl.reproduce.text import interval_text, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARED, LOCAL = "shared", "local"
_MARGIN = 0.05
"""Of the gain in return: what a local critic may lose and still be as good."""


class _Kind:
    """Returns and bytes of the cases of one kind of critic."""

    def __init__(self, experiment: Experiment, runs: Runs, group: str) -> None:
        self.returns = curves_of(experiment, runs, group)
        down, up = (curves_of(experiment, runs, group, f"bytes_{way}") for way in ("down", "up"))
        self.sent = {a: np.cumsum(down[a].values + up[a].values, axis=1) for a in self.returns}


def judge_local_critic(experiment: Experiment, runs: Runs) -> Finding:
    """What a local critic saves, and what it costs."""
    kinds = {group: _Kind(experiment, runs, group) for group in (SHARED, LOCAL)}
    rows = [_row(group, kind, a) for group, kind in kinds.items() for a in kind.returns]
    head = ["critic", "algorithm", "seeds", "final return", "megabytes sent"]
    lines = [
        [
            row["critic"],
            curves.name,
            f"{row['seeds']}",
            interval_text(estimate(curves.finals())),
            f"{row['bytes'] / 1e6:.3g}",
        ]
        for row, curves in zip(
            rows, (c for kind in kinds.values() for c in kind.returns.values()), strict=True
        )
    ]
    return Finding(rows, partial(_figure, kinds), f"{table(head, lines)}\n", [_saves(kinds)])


def _row(group: str, kind: _Kind, algorithm: str) -> dict[str, Any]:
    curves: Curves = kind.returns[algorithm]
    return {
        "critic": group,
        "algorithm": algorithm,
        "seeds": len(curves.seeds),
        "final_return": estimate(curves.finals()).value,
        "bytes": float(kind.sent[algorithm][:, -1].mean()),
    }


def _saves(kinds: dict[str, _Kind]) -> Verdict:
    shared, local = kinds[SHARED], kinds[LOCAL]
    both = [a for a in shared.returns if a in local.returns]
    if not both:
        return Verdict("saves", OPEN, "the runs are not there yet.")
    parts, said = [], []
    for a in both:
        one, other = shared.returns[a], local.returns[a]
        saved = 1 - local.sent[a][:, -1].mean() / shared.sent[a][:, -1].mean()
        gap = difference(other.finals(), one.finals())
        allowed = _MARGIN * float((one.finals() - one.values[:, 0]).mean())
        parts.append(verdict(difference(other.finals() + allowed, one.finals())))
        said.append(
            f"{one.name} sends {100 * saved:.0f} % less, and its final return changes by "
            f"{interval_text(gap)}"
        )
    return Verdict("saves", together(parts), f"{'; '.join(said)}.")


def _figure(kinds: dict[str, _Kind]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    shades = colours(dict.fromkeys(a for kind in kinds.values() for a in kind.returns))
    for group, kind in kinds.items():
        for a, curves in kind.returns.items():
            axes.plot(
                kind.sent[a].mean(axis=0) / 1e6,
                iqm(curves.values),
                color=shades[a],
                ls="-" if group == SHARED else "--",
                label=f"{curves.name}, critic {group}",
            )
    axes.set_xlabel("megabytes sent, in both directions")
    axes.set_ylabel("mean return")
    axes.tick_params(length=0)
    axes.legend()
    return figure
