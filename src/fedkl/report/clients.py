"""Figures of clients: how their parameters differ, and how heterogeneous they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkl.report.pictures import save_figure
from fedkl.report.style import BLUE, INK, MUTED, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Array = npt.NDArray[Any]

_ACROSS = 3  # panels in a row
_DOTS = 40  # with more clients than that, bars take the place of dots
_LABELLED = 20  # with more dots than that, their clients' numbers would not be readable
_DRAWERS = 40  # dots in the same one are stacked
_FEW_VALUES = 12  # so few have a bar each
_NUMBERED = 60  # with more boxes than that, their clients' numbers would not be readable


class Field(NamedTuple):
    """Boxes in a plane, one for each client, and the disc of what is within reach."""

    title: str
    low: Array
    high: Array
    reach: float


class Clients(NamedTuple):
    """The clients' parameters to be drawn."""

    title: str
    parameters: Mapping[str, Array]
    """By parameter, a row for each client."""
    nominal: Mapping[str, Any]
    """Nominal values, as far as they are known."""
    field: Field | None = None


def write_figure(path: Path, clients: Clients) -> None:
    """Draw the clients' parameters into a file.

    Raises:
        UserError: it cannot be written there.
    """
    save_figure(path, lambda: _figure(clients))


def _figure(clients: Clients) -> Figure:
    from matplotlib.figure import Figure

    # A parameter that is the same for all is one number, which the text has.
    differing = {
        parameter: rows
        for parameter, rows in clients.parameters.items()
        if (rows != rows[:1]).any()
    }
    panels = len(differing) + (clients.field is not None)
    if panels == 0:
        figure = Figure(figsize=(5.4, 1.2), layout="constrained")
        figure.text(0.5, 0.4, "all clients are identical", ha="center", color=MUTED)
    elif panels == 1 and clients.field is None:
        figure = Figure(figsize=(6.2, 2.3), layout="constrained")
        ((parameter, rows),) = differing.items()
        _parameter(figure.add_subplot(), parameter, rows, clients.nominal.get(parameter))
    else:
        across = 2 if panels == 4 else min(panels, _ACROSS)
        down = math.ceil(panels / across)
        figure = Figure(figsize=(3.4 * across, 3.2 * down + 0.3), layout="constrained")
        place = iter(range(1, panels + 1))
        if clients.field is not None:
            _field(figure.add_subplot(down, across, next(place)), clients.field)
        for parameter, rows in differing.items():
            axes = figure.add_subplot(down, across, next(place))
            _parameter(axes, parameter, rows, clients.nominal.get(parameter))
    figure.suptitle(clients.title, x=0.02, ha="left", size=11)
    return figure


def _parameter(axes: Axes, parameter: str, rows: Array, nominal: Any) -> None:
    """Draw a parameter of one number, of two, or of more."""
    if rows.ndim == 1:
        _numbers(axes, parameter, rows, nominal)
    elif rows.shape[1] == 2:
        _points(axes, parameter, rows, nominal)
    else:
        _entries(axes, parameter, rows, nominal)
    axes.tick_params(length=0)


def _numbers(axes: Axes, parameter: str, values: Array, nominal: Any) -> None:
    """Draw a dot for each client, or bars, if they are many."""
    if len(values) <= _DOTS:
        _strip(axes, values.astype(np.float64))
    else:
        _bars(axes, values.astype(np.float64))
    if nominal is not None:
        axes.axvline(float(nominal), color=VERMILLION, lw=1.2, ls="--")
        axes.annotate(
            "nominal",
            (float(nominal), 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -4),
            textcoords="offset points",
            size=8.5,
            color=VERMILLION,
            va="top",
        )
    axes.margins(x=0.06)
    axes.set_xlabel(parameter)


def _strip(axes: Axes, values: Array) -> None:
    """Draw dots along a line, stacked where they meet; few have their clients' numbers."""
    counts, edges = np.histogram(values, _DRAWERS)
    drawer = np.clip(np.searchsorted(edges, values, "right") - 1, 0, _DRAWERS - 1)
    height = np.empty(len(values))
    for own in np.unique(drawer):
        inside = np.flatnonzero(drawer == own)
        height[inside] = np.arange(len(inside)) + 0.5
    few = len(values) <= _LABELLED
    axes.scatter(values, height, s=24 if few else 14, color=BLUE, alpha=0.85, lw=0)
    for client, at in enumerate(zip(values, height, strict=True)) if few else ():
        axes.annotate(
            str(client), at, xytext=(0, 5), textcoords="offset points", ha="center", size=8
        )
    axes.set_ylim(0, max(counts.max() + 1.0, 4.0))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")


def _bars(axes: Axes, values: Array) -> None:
    """Draw the number of clients of each value, or of each range of values."""
    found, counts = np.unique(values, return_counts=True)
    if len(found) <= _FEW_VALUES:
        axes.bar(found, counts, 0.5 * np.diff(found).min(), color=BLUE, lw=0)
    else:
        axes.hist(values, min(30, math.ceil(math.sqrt(len(values)))), color=BLUE, lw=0)
    axes.set_ylabel("clients", labelpad=1)
    axes.grid(visible=False, axis="x")


def _points(axes: Axes, parameter: str, rows: Array, nominal: Any) -> None:
    """Draw a parameter of two numbers as points of a plane."""
    many = len(rows) > 10 * _DOTS
    x, y = rows.T
    axes.scatter(x, y, s=4 if many else 16, color=BLUE, alpha=0.4 if many else 0.85, lw=0)
    if nominal is not None:
        at = np.broadcast_to(np.asarray(nominal, np.float64), (2,))
        axes.plot(*at, "+", color=VERMILLION, ms=11, mew=1.6)
    axes.margins(0.08)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(f"{parameter}_0")
    axes.set_ylabel(f"{parameter}_1", labelpad=1)


def _entries(axes: Axes, parameter: str, rows: Array, nominal: Any) -> None:
    """Draw a column of dots for each entry of a parameter that has several."""
    x = np.arange(rows.shape[1])
    spread = np.linspace(-0.25, 0.25, len(rows)) if len(rows) > 1 else np.zeros(1)
    at = (x + spread[:, None]).ravel()
    axes.scatter(at, rows.ravel(), s=10, color=BLUE, alpha=0.7, lw=0)
    if nominal is not None:
        axes.scatter(x, np.broadcast_to(nominal, x.shape), marker="_", s=300, color=VERMILLION)
    axes.set_xticks(x[:: math.ceil(len(x) / 10)])
    axes.set_xlabel(f"entry of {parameter}")


def _field(axes: Axes, field: Field) -> None:
    """Draw each client's box, once where several share one, and the disc around the first hinge."""
    from matplotlib.patches import Circle, Rectangle

    corners = np.concatenate([field.low, field.high], axis=1).astype(np.float64)
    boxes, first, share = np.unique(corners.round(6), axis=0, return_index=True, return_counts=True)
    for (left, low, right, high), client, clients in zip(boxes, first, share, strict=True):
        axes.add_patch(
            Rectangle((left, low), right - left, high - low, fc=(BLUE, 0.12), ec=BLUE, lw=0.8)
        )
        if len(boxes) <= _NUMBERED:
            label = f"{client}" if clients == 1 else f"{clients} clients"
            middle = ((left + right) / 2, (low + high) / 2)
            size = 6.5 if len(boxes) > 16 else 8.5
            axes.annotate(label, middle, ha="center", va="center", size=size)
    axes.add_patch(Circle((0, 0), field.reach, fill=False, ec=VERMILLION, lw=1.2, ls="--"))
    edge = 1.06 * max(field.reach, float(np.abs(corners).max()))
    axes.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
    axes.set_xlabel(f"{field.title}; dashed: within reach")
    axes.set_xticks([-0.2, 0, 0.2])
    axes.set_yticks([-0.2, 0, 0.2])
    axes.grid(visible=False)
    axes.tick_params(length=0)


_NAMED = 60


def write_levels(path: Path, levels: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw clients' measured heterogeneity into a file.

    Args:
        path: ends in .png, .svg or .pdf.
        levels: a row for each client, as the log has it.
        title: above the figure.

    Raises:
        UserError: the file cannot be written.
    """
    save_figure(path, lambda: _levels(levels, title))


def _levels(levels: Sequence[Mapping[str, Any]], title: str) -> Figure:
    from matplotlib.figure import Figure

    ordered = sorted(levels, key=lambda row: -row["learning_potential"])

    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in ordered])

    x = np.arange(len(ordered))
    width = min(11.0, max(5.4, 0.16 * len(ordered) + 1.5))
    figure = Figure(figsize=(width, 5.2), layout="constrained")
    norms, alignment = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    gained, apart = column("advantage"), column("heterogeneity")
    norms.vlines(x, apart, gained, color=np.where(gained >= apart, MUTED, VERMILLION), lw=1)
    norms.plot(x, gained, "o", ms=4, color=BLUE, label="‖DA‖, what it could gain")
    norms.plot(x, apart, "s", ms=4, color=VERMILLION, label="‖DB‖, how far from the others")
    norms.axhline(0, color=MUTED, lw=0.8)
    norms.set_ylabel("norm")
    norms.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)
    helps = column("alignment")
    alignment.bar(x, helps, color=np.where(helps >= 0, BLUE, VERMILLION), width=0.7)
    alignment.axhline(0, color=INK, lw=0.8)
    alignment.set_ylabel("alignment")
    if len(ordered) <= _NAMED:
        many = len(ordered) > 20
        names = [str(row["client"]) for row in ordered]
        alignment.set_xticks(x, names, fontsize=7 if many else 9, rotation=90 if many else 0)
    alignment.set_xlabel("client, by G = ‖DA‖ - ‖DB‖, largest first; orange: below 0")
    figure.suptitle(title, x=0.02, ha="left", size=11)
    return figure
