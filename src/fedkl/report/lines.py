"""Lines and axes that all figures share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.report.groups import Curves, Group, Series, aligned, judged
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import FloatArray, interval
from fedkl.report.style import REFERENCES, colours, robust_range
from fedkl.report.table import minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SEEDS = 10  # more thin lines than that are a blur, and the band says it better
_FEW_POINTS = 12  # so few points of a curve are marked, lest a single one be invisible


class Line(NamedTuple):
    """A quantity of one algorithm, ready to be drawn.

    Attributes:
        name: of the algorithm.
        colour: of the algorithm.
        x: shape (points,).
        values: a row for each seed, shape (seeds, points).
        iqm: over the seeds, shape (points,).
        bounds: the ends of its 95 % interval, if there are seeds enough.
        dashes: of the line; those of algorithms have none.
    """

    name: str
    colour: str
    x: FloatArray
    values: FloatArray
    iqm: FloatArray
    bounds: tuple[FloatArray, FloatArray] | None
    dashes: Any = "-"

    @property
    def summary(self) -> FloatArray:
        """The IQM, and below it the ends of its interval if it has one."""
        return np.stack([self.iqm, *(self.bounds or ())])


def shades_of(groups: Sequence[Group]) -> dict[str, str]:
    """Return the colour of each algorithm, by its label; references are grey."""
    own = judged(groups)
    grey = {g.label: REFERENCES[g.reference][0] for g in groups if g.reference is not None}
    return grey | colours(group.label for group in own)


def dashes_of(group: Group, groups: Sequence[Group]) -> Any:
    """Return the line style of a group among others."""
    if group.reference is None or any(group is other for other in judged(groups)):
        return "-"
    return REFERENCES[group.reference][1]


def lines_of(groups: Sequence[Group], series: Series, over: Series | None = None) -> list[Line]:
    """Return a quantity of every algorithm that has it, from before the first round if known.

    Args:
        groups: the algorithms.
        series: the quantity.
        over: what the x axis shows instead of rounds.
    """
    shades = shades_of(groups)
    found = []
    for group in groups:
        full = group.curves(series)
        if not full.rounds.size:
            continue
        curves = full.thinned()
        x = curves.rounds.astype(np.float64)
        if over is not None:
            totals = aligned(group.counted, over)
            if not np.isin(full.rounds, totals.rounds).all():
                continue  # what it has spent is not known
            common = totals.values[:, np.isin(totals.rounds, full.rounds)]
            x = Curves(full.rounds, common).thinned().values.mean(axis=0)
        if (before := group.initial(series)) is not None:
            x = np.concatenate([[0.0], x])
            rounds = np.concatenate([[0], curves.rounds])
            curves = Curves(rounds, np.column_stack([before, curves.values]))
        shade = shades[group.label]
        bounds = interval(curves.values)
        dashes = dashes_of(group, groups)
        found.append(Line(group.label, shade, x, curves.values, curves.iqm, bounds, dashes))
    return found


def canvas(width: float = 5.4, height: float = 3.0) -> tuple[Figure, Axes]:
    """Make an empty figure, in inches; small, so that its letters are readable on a phone."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    round_ticks(axes, 7)
    return figure, axes


def round_ticks(axes: Axes, most: int) -> None:
    """Set ticks at whole rounds, which most x axes show; thousands and millions are k and M."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: minus(_short(value))))


def _short(value: float) -> str:
    """Return a number as a tick has it.

    Example:
        >>> _short(500), _short(20_000), _short(1.5e6)
        ('500', '20k', '1.5M')
    """
    for size, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:g}"


class XAxis(NamedTuple):
    """A quantity that figures may show from left to right."""

    label: str
    over: Callable[[LoadedRun], FloatArray] | None = None
    """None: rounds."""


X_AXES = {
    "rounds": XAxis("round"),
    "steps": XAxis("environment steps, all clients", lambda run: run.env_steps),
    "gradient-steps": XAxis("gradient steps, all clients", lambda run: run.gradient_steps),
    "bytes": XAxis("communicated (MB, both ways, all clients)", lambda run: run.megabytes),
}


def draw_line(axes: Axes, line: Line, width: float = 1.8, spread: bool = True) -> None:
    """Draw the IQM of an algorithm and, if asked, its seeds and the interval."""
    if spread and line.bounds is not None:
        axes.fill_between(line.x, *line.bounds, color=line.colour, alpha=0.16, lw=0)
        for values in line.values if len(line.values) <= MOST_SEEDS else ():
            axes.plot(line.x, values, color=line.colour, lw=0.6, alpha=0.4, zorder=1.5)
    mark = "o" if line.x.size <= _FEW_POINTS else ""
    style = {"color": line.colour, "lw": width, "ls": line.dashes, "marker": mark, "ms": 4}
    axes.plot(line.x, line.iqm, label=line.name, **style)


def room_for(
    groups: Sequence[Group],
    series: Series,
    drawn: Sequence[FloatArray],
    cut: str,
    keep: Sequence[float] = (),
) -> tuple[float, float, float | None]:
    """Return a robust y range in which every algorithm's end is seen; see `robust_range`."""
    ends = [float(f) for g in groups if g.curves(series).rounds.size for f in g.finals(series)]
    return robust_range(drawn, [*ends, *keep], cut)


def log_axis(axes: Axes, drawn: Sequence[FloatArray]) -> None:
    """Make the y axis logarithmic; linear close to zero if values have no logarithm."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    values = np.concatenate([np.ravel(d) for d in drawn])
    if (values > 0).all():
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        # Powers of ten alone may leave a short axis with one tick or none.
        steps = (1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)
        short = MaxNLocator(nbins=6, steps=[1, 2, 5, 10]) if high < 10 * low else None
        axes.yaxis.set_major_locator(short or LogLocator(subs=steps))
        axes.yaxis.set_minor_locator(NullLocator())
        plain_ticks(axes)
    elif (values > 0).any():
        axes.set_yscale("symlog", linthresh=float(values[values > 0].min()))
        plain_ticks(axes)


def plain_ticks(axes: Axes) -> None:
    """Write ticks of the y axis as plain numbers; logarithmic axes would write formulas."""
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: minus(f"{value:g}")))


def label_axes(axes: Axes, ylabel: str, xlabel: str) -> None:
    """Label the axes of a figure that has one pair."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.tick_params(length=0)
