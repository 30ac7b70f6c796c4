"""Learning curves of comparisons side by side: a picture and a table.

python docs/make_curves.py PICTURE.png --panel TITLE DIR [DIR ...] [--solved R] [--samples]

DIR is a comparison's directory; LABEL=DIR names its curves. With --solved the table says after
which round every client had a return of at least R. With --samples curves are over all environment
steps, those that were measured with among them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedkl.report import load_runs
from fedkl.report.groups import Group, grouped
from fedkl.report.lines import draw_line, lines_of
from fedkl.report.pictures import matplotlib_style
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import FloatArray, difference, probability_of_improvement
from fedkl.report.table import table, with_interval


def groups_of(places: list[str]) -> list[Group]:
    """The algorithms of one panel; with a label each, where it is made of several comparisons."""
    found = []
    for place in places:
        label, _, path = place.rpartition("=")
        groups = grouped(load_runs(Path(path)))
        for group in groups:
            parts = [label, group.label if len(groups) > 1 or not label else ""]
            found.append(replace(group, label=" ".join(filter(None, parts))))
    return found


def samples(run: LoadedRun) -> FloatArray:
    """Environment steps after each round, in millions, with those of measurements."""
    measured = np.cumsum([record.get("steps_measured", 0) for record in run.records])
    return (run.series("env_steps") + measured) / 1e6


def megabytes(run: LoadedRun) -> FloatArray:
    """Sent in both directions after each round."""
    keys = ("bytes_down", "bytes_up", "bytes_measured")
    return np.cumsum([sum(record.get(key, 0) for key in keys) for record in run.records]) / 1e6


def solved(group: Group, target: float) -> str:
    """The rounds after which every client first had that return, of the seeds in order."""
    worst = group.curves("return_min")
    firsts = [
        str(worst.rounds[reached.argmax()]) if (reached := values >= target).any() else "never"
        for values in worst.values
    ]
    return ", ".join(firsts)


def markdown(panels: dict[str, list[Group]], target: float | None) -> str:
    """A line for each curve."""
    head = ["clients", "", "rounds", "million steps", "MB", "final return", "worst client"]
    head += ["less the first", "above the first, probability"]
    if target is not None:
        head.append(f"every client at {target:g} after round (each seed)")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for title, groups in panels.items():
        for group in groups:
            (row,) = table(group.counted)
            cells = [
                title,
                group.label,
                str(group.last_round),
                f"{samples(group.counted[0])[-1]:.2f}",
                f"{megabytes(group.counted[0])[-1]:.1f}",
                with_interval(row.final),
                with_interval(row.worst_client),
            ]
            first, own = groups[0].finals(), group.finals()
            against = (difference(own, first), probability_of_improvement(own, first))
            cells += ["", ""] if group is groups[0] else map(with_interval, against)
            cells += [] if target is None else [solved(group, target)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(panels: dict[str, list[Group]], by_samples: bool, path: Path) -> None:
    """A panel for each, with its own axes."""
    with matplotlib_style():
        figure = Figure(figsize=(3.6 * len(panels) + 0.4, 3.4), layout="constrained")
        for axes, (title, groups) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            for line in lines_of(groups, "return_mean", samples if by_samples else None):
                draw_line(axes, line)
            axes.set_title(title, loc="left", size=10)
            axes.set_xlabel("million environment steps" if by_samples else "communication round")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))
            axes.tick_params(length=0)
            axes.legend(loc="lower right", fontsize=8)
        figure.axes[0].set_ylabel("mean return over clients")
        figure.savefig(path, dpi=200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--panel", nargs="+", action="append", required=True, metavar="TITLE DIR")
    parser.add_argument("--solved", type=float, metavar="R")
    parser.add_argument("--samples", action="store_true")
    args = parser.parse_args()
    panels = {title: groups_of(places) for title, *places in args.panel}
    print(markdown(panels, args.solved))
    draw(panels, args.samples, args.picture)


if __name__ == "__main__":
    main()
