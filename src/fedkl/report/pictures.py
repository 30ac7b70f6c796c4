"""Figures as files: drawn in one style, rendered once, written beside the page that shows them."""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.core.text import printable
from fedkl.io.files import explain_os_errors, refuse_link, require_writable, write_atomically
from fedkl.report.statistics import FloatArray
from fedkl.report.style import RC, themed
from fedkl.report.table import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_PNG_DPI = 200
_TITLE, _ROW = 0.32, 0.2  # inches above the axes: for the title, and for a row of the legend
_BESIDE = 30.0  # points of a figure's width that a legend leaves free
SUFFIXES = (".png", ".svg", ".pdf")
"""Of files with a figure of their own."""
# Without a date and a version the same numbers give the same file.
_NAMELESS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Creator": None},
    ".pdf": {"Creator": None, "Producer": None},
}
_DATES = {".png": "Creation Time", ".svg": "Date", ".pdf": "CreationDate"}


@dataclass(frozen=True)
class Drawing:
    """A figure, and what is said of it.

    Attributes:
        figure: without title and legend, which `rendered` puts above it.
        title: a few words.
        caption: what to see, in a sentence or three.
        traces: the lines whose values the page shows under the pointer.
        columns: of the legend, or as many as fit.
        printed: True if it is made for a paper: a PDF is written of it, too, which takes longer
            than all other files of a figure.
    """

    figure: Figure
    title: str
    caption: str
    traces: Sequence[Trace] = ()
    columns: int = 4
    printed: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure ready to be written.

    Attributes:
        name: the stem of its files.
        title: a few words.
        caption: what to see, in a sentence or three.
        values: those of its lines, as JSON for the page; empty if it has none to show.
        svg: for the page, with letters as paths, which need no font.
        files: by the ends of their names; in SVG and PDF text is text, to be searched and edited.
    """

    name: str
    title: str
    caption: str
    values: str
    svg: str
    files: Mapping[str, bytes]


def check_target(path: Path) -> None:
    """Check, before anything costs time, that a figure can be written to a path.

    Raises:
        UserError: it is of no kind that we write, it cannot be written, or matplotlib is missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"a figure is a file that ends in .png, .svg or .pdf, and {path} does not")
    require_writable(path)
    require_matplotlib()


def save_figure(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure in our style and write it to a file of its own.

    Raises:
        UserError: `check_target` refuses the path, or the operating system does.
    """
    check_target(path)
    with matplotlib_style():
        figure = draw()
        make_printable(figure)
        data = saved(figure, path.suffix.lower())
    with explain_os_errors("write", path):
        write_atomically(path, data)


def require_matplotlib() -> None:
    """Raise an error unless matplotlib is installed, before anything costs time.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError("a report needs matplotlib", "report") from error


@contextmanager
def matplotlib_style() -> Iterator[None]:
    """Set the style of our figures while they are drawn and rendered, and of no others.

    Raises:
        UserError: if matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


def rendered(drawings: Mapping[str, Drawing]) -> dict[str, Picture]:
    """Render drawings as pictures, by name; within `matplotlib_style`."""
    return {name: _picture(name, drawing) for name, drawing in drawings.items()}


def _picture(name: str, drawing: Drawing) -> Picture:
    head(drawing.figure, drawing.title, drawing.columns)
    make_printable(drawing.figure)
    svg = saved(drawing.figure, ".svg", letters="path").decode()
    # The places of lines are known when the layout has been made; to make it again takes long.
    values = values_of(drawing.figure, drawing.traces)
    drawing.figure.set_layout_engine("none")
    suffixes = [suffix for suffix in SUFFIXES if suffix != ".pdf" or drawing.printed]
    files = {suffix: saved(drawing.figure, suffix) for suffix in suffixes}
    return Picture(name, drawing.title, drawing.caption, values, svg, files)


def make_printable(figure: Figure) -> None:
    """Make every text in a figure fit to be shown, whichever run or directory it is from."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))


def head(figure: Figure, title: str, columns: int = 4) -> None:
    """Write a title and list what is drawn above all axes; the figure grows by as much.

    Args:
        figure: with its axes, laid out by matplotlib's constrained layout.
        title: of the figure; empty for none.
        columns: of the list, or as many as fit.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    listed: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            listed.setdefault(printable(label), handle)
    columns = _fitting(list(listed), columns, figure.get_figwidth() * 72 - _BESIDE)
    rows = math.ceil(len(listed) / columns)
    room = _TITLE if title else 0.0
    above = room + (_ROW * rows + 0.1 if rows else 0.0)
    height = figure.get_figheight() + above
    figure.set_figheight(height)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0, 0, 1, 1 - above / height))
    figure.text(0.012, 1 - 0.07 / height, title, size=11.5, weight="bold", va="top")
    if listed:
        # A legend fills its columns one after the other; we read rows.
        names = [name for column in range(columns) for name in [*listed][column::columns]]
        handles = [listed[name] for name in names]
        at = (0.0, 1 - room / height)
        tight: dict[str, Any] = {"borderpad": 0.0, "borderaxespad": 0.4, "labelspacing": 0.3}
        tight |= {} if title else {"fontsize": 8}
        figure.legend(handles, names, ncols=columns, loc="upper left", bbox_to_anchor=at, **tight)


def _fitting(labels: Sequence[str], most: int, width: float) -> int:
    """Return the columns in which a legend of these labels is no wider than so many points."""
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


def write_figures(
    directory: Path, pictures: Mapping[str, Picture], possible: Iterable[str] = ()
) -> None:
    """Write the pictures into `figures/`, and remove those that an earlier report left.

    Args:
        directory: where the page is.
        pictures: by name.
        possible: the names of all figures that the page may have, if not the same each time;
            a star stands for any letters.

    Raises:
        UserError: if the operating system refuses.
    """
    folder = directory / "figures"
    with explain_os_errors("write the figures of", directory):
        refuse_link(folder)
        folder.mkdir(exist_ok=True)
        for name, picture in pictures.items():
            for suffix, data in picture.files.items():
                write_atomically(folder / f"{name}{suffix}", data)
        for pattern, suffix in product(possible, SUFFIXES):
            for path in folder.glob(f"{pattern}{suffix}"):
                if path.stem not in pictures:
                    path.unlink(missing_ok=True)


def saved(figure: Figure, suffix: str, letters: str = "none") -> bytes:
    """Return a figure as a file of one of `SUFFIXES`; the same figure gives the same bytes.

    Args:
        figure: what to save, within `matplotlib_style`.
        suffix: of the file.
        letters: of SVG: "none" keeps text as text, "path" draws it.
    """
    import matplotlib

    data = io.BytesIO()
    # Builds that are to be repeated exactly may give a day; else there is none.
    undated = {} if "SOURCE_DATE_EPOCH" in os.environ else {_DATES[suffix]: None}
    with matplotlib.rc_context({"svg.fonttype": letters}):
        metadata = _NAMELESS[suffix] | undated
        figure.savefig(data, format=suffix[1:], dpi=_PNG_DPI, metadata=metadata)
    if suffix != ".svg":
        return data.getvalue()
    return _slim(data.getvalue().decode("utf-8")).encode()


def _slim(svg: str) -> str:
    """Shorten a picture's text: a hundredth of a point is invisible."""

    def path(found: re.Match[str]) -> str:
        rounded = re.sub(
            r"-?\d+\.\d+", lambda n: f"{float(n[0]):.2f}".rstrip("0").rstrip("."), found[0]
        )
        return re.sub(r"\s+", " ", rounded)

    return re.sub(r' d="[^"]*"', path, svg)


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
    """Return the traces as JSON that may stand inside of HTML; empty if there are none.

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
    """Shorten numbers as tables do; None for those that are not finite."""
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
