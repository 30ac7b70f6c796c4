"""What heterogeneity costs, and what each algorithm wins back of it: a picture and a table.

python docs/make_price.py IID HETEROGENEOUS PICTURE.png

IID and HETEROGENEOUS are the directories of two comparisons with the same rounds: FedAvg on clients
that are all alike, and several algorithms, FedAvg among them, on clients that differ.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedkl.report import load_runs
from fedkl.report.groups import Group, grouped
from fedkl.report.lines import canvas, draw_line, label_axes, lines_of, room_for
from fedkl.report.pictures import head, matplotlib_style
from fedkl.report.statistics import FloatArray, estimate, iqm, probability_of_improvement
from fedkl.report.table import with_interval

ALIKE, BASE = "fedavg, clients alike", "fedavg"
BASELINES = (BASE, "fedkl")
DRAWS = 10_000


def won_back(top: FloatArray, base: FloatArray, own: FloatArray) -> str:
    """The share of the price that an algorithm wins back, with a bootstrap interval over seeds."""
    generator = np.random.default_rng(0)

    def resampled(values: FloatArray) -> FloatArray:
        chosen = generator.integers(values.size, size=(DRAWS, values.size))
        return np.asarray(iqm(values[chosen].T))

    def share(top: FloatArray, base: FloatArray, own: FloatArray) -> FloatArray:
        return (own - base) / (top - base)

    low, high = np.quantile(share(*map(resampled, (top, base, own))), [0.025, 0.975])
    return f"{share(iqm(top), iqm(base), iqm(own)):.0%} [{low:.0%}, {high:.0%}]"


def better(own: FloatArray, other: FloatArray) -> str:
    """The probability that a run ends above another, with its interval if seeds allow for one."""
    chance = probability_of_improvement(own, other)
    pairs = own.size * other.size
    return (
        f"{chance.value:.0f} (of {pairs} pairs)"
        if chance.value in (0, 1)
        else with_interval(chance)
    )


def markdown(alike: Group, groups: list[Group]) -> str:
    """The table: final return, what of the price is won back, and how surely."""
    finals = {group.label: group.finals() for group in groups}
    top, base = alike.finals(), finals[BASE]
    price = float(iqm(top) - iqm(base))
    against = [name for name in BASELINES if name in finals]
    columns = "".join(f" better than {name}, probability |" for name in against)
    lines = [
        f"price of heterogeneity: {iqm(top):.2f} - ({iqm(base):.2f}) = {price:.2f}",
        "",
        f"| algorithm | final return | of the price won back |{columns}",
        "|---" * (3 + len(against)) + "|",
        f"| {ALIKE} | {with_interval(estimate(top))} | {'| ' * len(against)}|",
    ]
    for name, own in finals.items():
        chances = ["" if name == other else better(own, finals[other]) for other in against]
        share = "" if name == BASE else won_back(top, base, own)
        cells = [name, with_interval(estimate(own)), share, *chances]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(alike: Group, groups: list[Group], path: Path) -> None:
    """The learning curves of all, the clients that are alike in black."""
    with matplotlib_style():
        figure, axes = canvas(6.2, 3.1)
        shown = [alike, *groups]
        lines = lines_of(shown, "return_mean")
        for line in lines:
            draw_line(axes, line)
        drawn = [line.values for line in lines]
        low, high, _ = room_for(shown, "return_mean", drawn, "low")
        axes.set_ylim(low, high)
        label_axes(axes, "mean return over clients", "communication round")
        head(figure, "What heterogeneity costs, and who wins it back", columns=2)
        figure.savefig(path, dpi=200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("iid", type=Path)
    parser.add_argument("heterogeneous", type=Path)
    parser.add_argument("picture", type=Path)
    args = parser.parse_args()
    alike, groups = grouped(load_runs(args.iid)), grouped(load_runs(args.heterogeneous))
    for where, found in (args.iid, alike), (args.heterogeneous, groups):
        if BASE not in [group.label for group in found]:
            parser.error(f"{where} holds no run of {BASE}")
    (top,) = [group for group in alike if group.label == BASE]
    top = replace(top, label=ALIKE)
    print(markdown(top, groups))
    draw(top, groups, args.picture)


if __name__ == "__main__":
    main()
