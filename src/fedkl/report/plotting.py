"""What the figures have in common: drawing the runs of every algorithm on a pair of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from fedkl.report.groups import Curves, Group, Series, aligned
from fedkl.report.statistics import FloatArray, interval
from fedkl.report.style import MUTED, colours, robust_range
from fedkl.report.table import minus, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 4  # with more algorithms than that a figure shows less of each
_BESIDE = 50.0  # points of a figure's width that are not the axes'
_FEW_POINTS = 12  # so few points of a curve are marked, lest a single one be invisible


def canvas(width: float = 5.4, height: float = 3.3) -> tuple[Figure, Axes]:
    """An empty figure, in inches; small, so that its letters are readable on a phone."""
    from matplotlib.figure import Figure as NewFigure
    from matplotlib.ticker import MaxNLocator

    figure = NewFigure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))
    return figure, axes


def plot(
    axes: Axes,
    groups: Sequence[Group],
    series: Series,
    over: Series | None = None,
    width: float = 1.8,
) -> list[FloatArray]:
    """Draws a quantity of every algorithm over rounds, or over another running quantity.

    Args:
        axes: where to draw.
        groups: the algorithms.
        series: the quantity.
        over: what the x axis shows instead of rounds.
        width: of the line of the IQM; thinner suits quantities that jump from round to round.

    Returns:
        The values drawn; empty if no algorithm has any.
    """
    shades = colours(group.algorithm for group in groups)
    drawn = []
    for group in groups:
        full = group.curves(series)
        if not full.rounds.size:
            continue
        curves = full.thinned()
        colour = shades[group.algorithm]
        x = curves.rounds.astype(np.float64)
        if over is not None:
            totals = aligned(group.counted, over)
            common = totals.values[:, np.isin(totals.rounds, full.rounds)]
            x = Curves(full.rounds, common).thinned().values.mean(axis=0)
        bounds = interval(curves.values)
        if bounds is not None:
            axes.fill_between(x, *bounds, color=colour, alpha=0.16, lw=0)
            for values in curves.values if len(groups) <= MANY else ():
                axes.plot(x, values, color=colour, lw=0.6, alpha=0.4, zorder=1.5)
        mark = "o" if x.size <= _FEW_POINTS else ""
        label = group.algorithm
        axes.plot(x, curves.iqm, color=colour, lw=width, marker=mark, ms=4, label=label)
        drawn.append(curves.values)
    return drawn


def limit(
    axes: Axes,
    groups: Sequence[Group],
    key: str,
    drawn: Sequence[FloatArray],
    cut: str,
    target: float | None = None,
) -> str:
    """Sets a robust y range; returns the sentence that owns up to it, or nothing."""
    keep = [float(f) for g in groups if g.curves(key).rounds.size for f in g.finals(key)]
    low, high, extreme = robust_range(drawn, keep + ([] if target is None else [target]), cut)
    axes.set_ylim(low, high)
    if extreme is None:
        return ""
    side, end = ("below", low) if cut == "low" else ("above", high)
    text = f"cut at {number(end)}: a few values, as far as {number(extreme)}, lie {side} it"
    return f" The axis is {minus(text)}."


def mark_setting(axes: Axes, groups: Sequence[Group], table: str, key: str) -> bool:
    """Draws the value of a setting as a line: grey if all algorithms share it."""
    found = {g.algorithm: g.counted[0].setting(table, key) for g in groups}
    values = {name: float(v) for name, v in found.items() if isinstance(v, int | float)}
    shades = colours(found)
    for value in sorted(set(values.values())):
        owners = [name for name, v in values.items() if v == value]
        colour = shades[owners[0]] if len(owners) == 1 < len(groups) else MUTED
        axes.axhline(value, color=colour, lw=1.1, ls="--", label=f"{key} = {value:g}")
    return bool(values)


def log_axis(axes: Axes, drawn: Sequence[FloatArray]) -> None:
    """A logarithmic y axis; linear close to zero if there are values that have no logarithm."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    values = np.concatenate([np.ravel(d) for d in drawn])
    if (values > 0).all():
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        # Powers of ten alone may leave a short axis with one tick or none.
        steps = (1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)
        short = MaxNLocator(nbins=6, steps=[1, 2, 5, 10]) if high < 10 * low else None
        axes.yaxis.set_major_locator(short or LogLocator(subs=steps))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif (values > 0).any():
        axes.set_yscale("symlog", linthresh=float(values[values > 0].min()))


def finish(axes: Axes, ylabel: str, xlabel: str = "round", columns: int = 4) -> None:
    """Labels the axes and lists what is drawn above them, in so many columns or what fits."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.tick_params(length=0)
    handles, labels = axes.get_legend_handles_labels()
    figure = cast("Figure", axes.figure)
    columns = _fitting(labels, columns, figure.get_figwidth() * 72 - _BESIDE)
    # A third row and more would be taken from the height of the axes.
    grown = 0.2 * max(0, math.ceil(len(handles) / columns) - 2)
    figure.set_figheight(figure.get_figheight() + grown)
    # A legend fills its columns one after the other; we read rows.
    by_rows = [handle for column in range(columns) for handle in handles[column::columns]]
    above = (-0.01, 1.0)
    axes.legend(
        handles=by_rows, ncols=columns, loc="lower left", bbox_to_anchor=above, borderaxespad=0.2
    )


def _fitting(labels: Sequence[str], most: int, width: float) -> int:
    """In how many columns a legend of these labels is no wider than so many points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    size = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    beside = rcParams["legend.handlelength"] + rcParams["legend.handletextpad"]
    between = rcParams["legend.columnspacing"] * size
    widths = [TextPath((0, 0), label, size).get_extents().width + beside * size for label in labels]
    for columns in range(most, 1, -1):
        used = [max(widths[column::columns], default=0.0) for column in range(columns)]
        if sum(used) + between * (columns - 1) <= width:
            return columns
    return 1
