"""What heterogeneity costs, and what each algorithm wins back of it: a picture and a table.

python docs/make_price.py IID HETEROGENEOUS PICTURE.png

IID and HETEROGENEOUS are the directories of two comparisons with the same seeds and rounds: FedAvg
on clients that are all alike, and several algorithms, FedAvg among them, on clients that differ.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from fedkl.report import load_runs
from fedkl.report.groups import Group, grouped
from fedkl.report.pictures import matplotlib_style
from fedkl.report.plotting import canvas, finish, limit, plot
from fedkl.report.statistics import estimate, probability_of_improvement
from fedkl.report.table import with_interval

ALIKE, BASE = "fedavg, clients alike", "fedavg"


def markdown(alike: Group, groups: list[Group]) -> str:
    """The table: final return, what of the price is won back, and how surely."""
    (base,) = [group for group in groups if group.algorithm == BASE]
    top, bottom = estimate(alike.finals()).value, estimate(base.finals()).value
    price = top - bottom
    lines = [
        f"price of heterogeneity: {top:.2f} - ({bottom:.2f}) = {price:.2f}",
        "",
        "| algorithm | final return | of the price won back | better than fedavg, probability |",
        "|---|---|---|---|",
        f"| {ALIKE} | {with_interval(estimate(alike.finals()))} | | |",
    ]
    for group in groups:
        final = estimate(group.finals())
        share, chance = "", ""
        if group is not base:
            share = f"{(final.value - bottom) / price:.0%}"
            chance = with_interval(probability_of_improvement(group.finals(), base.finals()))
        lines.append(f"| {group.algorithm} | {with_interval(final)} | {share} | {chance} |")
    return "\n".join(lines)


def draw(alike: Group, groups: list[Group], path: Path) -> None:
    """The learning curves of all, the clients that are alike in black."""
    with matplotlib_style():
        figure, axes = canvas(6.2, 3.6)
        shown = [alike, *groups]
        drawn = plot(axes, shown, "return_mean")
        limit(axes, shown, "return_mean", drawn, "low")
        finish(axes, "mean return over 60 clients", "communication round", columns=3)
        figure.savefig(path, dpi=200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("iid", type=Path)
    parser.add_argument("heterogeneous", type=Path)
    parser.add_argument("picture", type=Path)
    args = parser.parse_args()
    (alike,) = grouped(load_runs(args.iid))
    groups = grouped(load_runs(args.heterogeneous))
    alike = replace(alike, algorithm=ALIKE)
    print(markdown(alike, groups))
    draw(alike, groups, args.picture)


if __name__ == "__main__":
    main()
