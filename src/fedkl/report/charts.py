"""A quantity of every algorithm over rounds, in as many panels as it takes to see it.

Where a few early values would flatten the rest, the first panel shows all values and the next a
close-up. Where more than two algorithms would lie over each other, each has a panel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from fedkl.report.groups import Group, Series, judged
from fedkl.report.lines import (
    X_AXES,
    Line,
    canvas,
    draw_line,
    lines_of,
    log_axis,
    room_for,
    round_ticks,
)
from fedkl.report.pictures import Drawing, Trace
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import FloatArray
from fedkl.report.style import BEHIND, MUTED, SHADE
from fedkl.report.table import minus, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOGETHER = 2  # more algorithms than that have a panel each
MOST_PANELS = 6  # each has all others behind it: with more a page is heavy and all panels
_ACROSS = 2
_PANEL_HEIGHT, _PANELS_WIDTH = 1.85, 6.2
_DASHES = (0, (4, 2))
_REFERENCE_WIDTH = 1.3


class Mark(NamedTuple):
    """A level drawn across every panel."""

    value: float
    label: str
    colour: str = MUTED
    dashes: str = "--"


@dataclass(frozen=True)
class Chart:
    """A quantity of the algorithms to be drawn.

    Attributes:
        title: of the figure.
        series: the quantity.
        ylabel, xlabel: of the axes.
        over: what the x axis shows instead of rounds.
        width: of the line of the IQM; thinner suits quantities that jump from round to round.
        cut: "low" or "high", the end at which a few early values may be left to the first panel.
        log: whether the y axis is logarithmic.
        from_zero: whether the y axis begins at zero, or higher.
        dashed: a second quantity, drawn in dashes, and what the legend calls it.
        marks: levels to see the quantity against.
        unfinished: whether runs that are not counted are drawn in dots.
    """

    title: str
    series: Series
    ylabel: str
    xlabel: str = "round"
    over: Callable[[LoadedRun], FloatArray] | None = None
    width: float = 1.8
    cut: str = ""
    log: bool = False
    from_zero: bool = False
    dashed: tuple[Series, str] | None = None
    marks: Sequence[Mark] = ()
    unfinished: bool = False


class _Panel(NamedTuple):
    """The lines of one pair of axes: all of them, or one before the others."""

    title: str
    lines: Sequence[Line]
    behind: Sequence[Line] = ()
    whole: bool = False


class _Content(NamedTuple):
    """Everything that panels choose from."""

    chart: Chart
    groups: Sequence[Group]
    lines: Sequence[Line]
    dashed: Sequence[Line]
    references: Sequence[Line]
    """References to compare with, in every panel."""

    @property
    def together(self) -> bool:
        """True if all algorithms fit into one pair of axes with their seeds and intervals."""
        return len(self.lines) <= TOGETHER


def draw_chart(
    groups: Sequence[Group], chart: Chart, caption: str, x: str = "rounds"
) -> Drawing | None:
    """Draw a quantity; None if no algorithm has it.

    Args:
        groups: the algorithms.
        chart: what to draw.
        caption: to which a sentence is added where there is a close-up.
        x: of `X_AXES`, for a chart that has no x axis of its own.
    """
    if chart.over is None:
        chart = replace(chart, over=X_AXES[x].over, xlabel=X_AXES[x].label)
    every = lines_of(groups, chart.series, chart.over)
    lines = [line for line in every if line.dashes == "-"]
    if not lines:
        return None
    dashed = [] if chart.dashed is None else lines_of(judged(groups), chart.dashed[0], chart.over)
    references = [line for line in every if line.dashes != "-"]
    content = _Content(chart, groups, lines, dashed, references)
    room = _room(content) if chart.cut else None
    cut = room is not None and room[2] is not None
    panels = _panels(content, cut)
    figure, axes = _axes(panels)
    traces: list[Trace] = []
    for panel, own in zip(panels, axes, strict=True):
        _draw(own, panel, content)
        shown = (*panel.lines, *references)
        traces += [Trace(own, line.name, line.colour, line.x, line.summary) for line in shown]
    _limits(panels, axes, content, room)
    _labels(panels, axes, chart)
    if cut and room is not None:
        said = f"from {number(room[0])} to {number(room[1])}"
        rest = "the others" if len(panels) > 2 else "the second"
        caption += f" The first panel shows all values, {rest} the range {minus(said)}, grey there."
    return Drawing(figure, chart.title, caption, traces)


def _room(content: _Content) -> tuple[float, float, float | None]:
    """Return the range of the close-up, and the most extreme value beyond it."""
    chart = content.chart
    lines = (*content.lines, *content.dashed, *content.references)
    drawn = [line.values for line in lines]
    low, high, extreme = room_for(
        content.groups, chart.series, drawn, chart.cut, [mark.value for mark in chart.marks]
    )
    return (max(0.0, low) if chart.from_zero else low), high, extreme


def _panels(content: _Content, cut: bool) -> list[_Panel]:
    lines = content.lines
    found = [_Panel("all values", lines, whole=True)] if cut else []
    found.append(_Panel("close-up" if cut else "all together", lines))
    if TOGETHER < len(lines) <= MOST_PANELS:
        for line in lines:
            others = [other for other in lines if other is not line]
            found.append(_Panel(line.name, [line], others))
    return found


def _axes(panels: Sequence[_Panel]) -> tuple[Figure, list[Axes]]:
    """Make axes that share their rounds, and their values unless they show all of them."""
    if len(panels) == 1:
        figure, only = canvas()
        return figure, [only]
    from matplotlib.figure import Figure

    down = math.ceil(len(panels) / _ACROSS)
    # Two panels of one row have the height that one would have.
    height = 2.9 if down == 1 else _PANEL_HEIGHT * down + 0.3
    figure = Figure(figsize=(_PANELS_WIDTH, height), layout="constrained")
    made: list[Axes] = []
    near: Axes | None = None
    for place, panel in enumerate(panels, 1):
        sharex = made[0] if made else None
        sharey = None if panel.whole else near
        axes = figure.add_subplot(down, _ACROSS, place, sharex=sharex, sharey=sharey)
        if not panel.whole and near is None:
            near = axes
        round_ticks(axes, 5)
        made.append(axes)
    return figure, made


def _draw(axes: Axes, panel: _Panel, content: _Content) -> None:
    chart = content.chart
    for line in panel.behind:
        axes.plot(line.x, line.iqm, color=BEHIND, lw=1.1, zorder=1.2)
    alone = bool(panel.behind)
    for line in panel.lines:
        draw_line(axes, line, chart.width, spread=content.together or alone)
    for line in content.references:
        draw_line(axes, line, _REFERENCE_WIDTH, spread=False)
    shown = {line.name for line in panel.lines}
    dashed = chart.dashed[1] if chart.dashed else ""
    for line in content.dashed if content.together or alone else ():
        if line.name in shown:
            axes.plot(line.x, line.iqm, color=line.colour, lw=1, ls=_DASHES)
            axes.plot([], [], color=MUTED, lw=1, ls=_DASHES, label=dashed)
    for group in content.groups if chart.unfinished and isinstance(chart.series, str) else ():
        colour = next((line.colour for line in panel.lines if line.name == group.label), None)
        for run in group.left_out if colour else ():
            x = run.rounds if chart.over is None else chart.over(run)
            axes.plot(x, run.series(str(chart.series)), "o:", ms=2, lw=1, c=colour)
    for mark in chart.marks:
        axes.axhline(mark.value, color=mark.colour, lw=1, ls=mark.dashes, label=mark.label)


def _limits(
    panels: Sequence[_Panel],
    axes: Sequence[Axes],
    content: _Content,
    room: tuple[float, float, float | None] | None,
) -> None:
    chart = content.chart
    for panel, own in zip(panels, axes, strict=True):
        if chart.log:
            log_axis(own, [line.values for line in content.lines])
        elif panel.whole:
            if room is not None:
                own.axhspan(room[0], room[1], color=SHADE, lw=0, zorder=0.5)
            if chart.from_zero:
                own.set_ylim(bottom=0)
        elif room is not None:
            own.set_ylim(room[0], room[1])
        elif chart.from_zero:
            own.set_ylim(bottom=0)
        if chart.over is not None:
            own.set_xlim(left=0)


def _labels(panels: Sequence[_Panel], axes: Sequence[Axes], chart: Chart) -> None:
    several = len(panels) > 1
    if several:
        axes[0].figure.supylabel(chart.ylabel, size=10)
        axes[0].figure.supxlabel(chart.xlabel, size=10)
    else:
        axes[0].set_xlabel(chart.xlabel)
        axes[0].set_ylabel(chart.ylabel)
    for panel, own in zip(panels, axes, strict=True):
        own.tick_params(length=0)
        if several:
            colour = panel.lines[0].colour if panel.behind else MUTED
            own.set_title(panel.title, loc="left", size=9.5, color=colour, pad=3)
