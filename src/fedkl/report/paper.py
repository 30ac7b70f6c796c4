"""The figure for a paper: all algorithms in one pair of axes, a column wide, without a title."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedkl.report.groups import Group, judged, levels
from fedkl.report.lines import X_AXES, dashes_of, draw_line, lines_of, room_for, round_ticks
from fedkl.report.pictures import Drawing
from fedkl.report.style import REFERENCES, colours
from fedkl.report.table import minus

_COLUMN, _PAGE = 3.4, 7.0
"""Inches of a column of two, and of both."""
_HEIGHT = 2.1
_ACROSS = 3
_MOST_LEVELS = 6
_LETTERS = 8  # points: those of a caption


def draw_paper(groups: Sequence[Group], x: str) -> Drawing | None:
    """Draw the return of all algorithms with their intervals in one panel, or one for each task.

    Args:
        groups: the algorithms.
        x: of `X_AXES`.
    """
    from matplotlib.figure import Figure

    tasks = {
        level: found
        for level, own in levels(groups).items()
        if (found := [group for group in own if group.evaluated])
    }
    if not 0 < len(tasks) <= _MOST_LEVELS:
        return None
    shades = _shades(groups)
    across = min(len(tasks), _ACROSS)
    down = math.ceil(len(tasks) / across)
    width = _COLUMN if across == 1 else _PAGE
    figure = Figure(figsize=(width, _HEIGHT * down), layout="constrained")
    for place, (level, own) in enumerate(tasks.items(), 1):
        axes = figure.add_subplot(down, across, place)
        lines = []
        for group in own:
            for line in lines_of([group], "return_mean", X_AXES[x].over):
                name, colour = group.method or group.label, shades[group.method]
                line = line._replace(name=name, colour=colour, dashes=dashes_of(group, groups))
                if line.bounds is not None:
                    axes.fill_between(line.x, *line.bounds, color=colour, alpha=0.18, lw=0)
                draw_line(axes, line, width=1.3, spread=False)
                lines.append(line)
        if lines:
            drawn = [line.summary for line in lines]
            axes.set_ylim(*room_for(own, "return_mean", drawn, "low")[:2])
        round_ticks(axes, 5)
        axes.set_title(minus(level), size=_LETTERS, loc="left", pad=3)
        axes.tick_params(length=0, labelsize=_LETTERS)
    figure.supxlabel(X_AXES[x].label, size=_LETTERS)
    figure.supylabel("mean return over clients", size=_LETTERS)
    return Drawing(
        figure,
        "",
        "All algorithms in one panel, a column wide: interquartile mean over seeds, and its 95 % "
        "interval.",
        columns=3 if across == 1 else 6,
        printed=True,
    )


def _shades(groups: Sequence[Group]) -> dict[str, str]:
    """Return the colour of each algorithm by its name without the task, the same in every panel."""
    grey = {g.method: REFERENCES[g.reference][0] for g in groups if g.reference is not None}
    return grey | colours(group.method for group in judged(groups))
