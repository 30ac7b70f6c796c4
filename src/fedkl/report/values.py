"""What a figure's lines are worth, for the page that shows them under the pointer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.report.statistics import FloatArray
from fedkl.report.style import themed
from fedkl.report.table import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Trace(NamedTuple):
    """A line and its values.

    Attributes:
        axes: where it is drawn.
        name: what the legend calls it.
        colour: of the line.
        x: where its points are, shape (points,).
        summary: their values, and the ends of their intervals if there are any: shape
            (1, points) or (3, points).
    """

    axes: Axes
    name: str
    colour: str
    x: FloatArray
    summary: FloatArray


def values_of(figure: Figure, traces: Sequence[Trace]) -> str:
    """The traces as JSON that may stand inside of HTML; empty if there are none.

    A line is told once, however many panels it is drawn in. A panel is told by its place in the
    picture, in points from the upper left corner, and by the ends of its axes: the script finds
    the place of a value from these.

    Args:
        figure: as it was saved, its layout made.
        traces: of its lines.
    """
    if not traces:
        return ""
    lines: dict[tuple[str, bytes], int] = {}
    told: list[dict[str, Any]] = []
    panels: dict[int, dict[str, Any]] = {}
    for trace in traces:
        key = (trace.name, trace.summary.tobytes())
        if key not in lines:
            lines[key] = len(told)
            told.append(_line(trace))
        panel = panels.setdefault(id(trace.axes), _panel(figure, trace.axes))
        panel["lines"].append(lines[key])
    # No text of a run ends the element that it stands in.
    data = json.dumps({"lines": told, "panels": list(panels.values())}, separators=(",", ":"))
    return data.replace("<", "\\u003c").replace("&", "\\u0026")


def _line(trace: Trace) -> dict[str, Any]:
    said = {"name": trace.name, "colour": themed(trace.colour), "x": _short(trace.x)}
    for name, values in zip(("y", "low", "high"), trace.summary, strict=False):
        said[name] = _short(values)
    return said


def _short(values: FloatArray) -> list[float | int | None]:
    """Numbers as tables have them; None for what is not finite."""
    found = [float(number(float(v))) if np.isfinite(v) else None for v in values]
    return [int(v) if v is not None and v.is_integer() else v for v in found]


def _panel(figure: Figure, axes: Axes) -> dict[str, Any]:
    width, height = 72 * figure.get_size_inches()
    box = axes.get_position()
    edges = [width * box.x0, height * (1 - box.y1), width * box.x1, height * (1 - box.y0)]
    return {
        "box": [round(float(edge), 1) for edge in edges],
        "x": _axis(axes.get_xlim(), axes.get_xscale()),
        "y": _axis(axes.get_ylim(), axes.get_yscale()),
        "label": axes.get_xlabel() or figure.get_supxlabel(),
        "lines": [],
    }


def _axis(ends: tuple[float, float], scale: str) -> list[Any]:
    return [float(f"{ends[0]:.6g}"), float(f"{ends[1]:.6g}"), scale]
