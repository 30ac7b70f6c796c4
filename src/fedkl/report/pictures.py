"""Figures as files: drawn in one style, rendered once, written beside the page that shows them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.errors import UserError
from fedkl.report.style import RC
from fedkl.runs import explain_os_errors, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PNG_DPI = 200
SUFFIXES = (".png", ".svg", ".pdf")
"""Of files with a figure of their own."""


@dataclass(frozen=True)
class Drawing:
    """A figure and its caption."""

    figure: Figure
    caption: str


@dataclass(frozen=True)
class Picture:
    """A figure ready to be written.

    Attributes:
        name: the stem of its files.
        caption: what to see, in a sentence or three.
        svg: the picture as SVG text.
        png: the picture as PNG bytes.
    """

    name: str
    caption: str
    svg: str
    png: bytes


def check_target(path: Path) -> None:
    """Finds out, before anything costs time, whether a figure can be written to a path.

    Raises:
        UserError: it is of no kind that we write, its folder is missing, or matplotlib is.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"a figure is a file that ends in .png, .svg or .pdf, and {path} does not")
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: the folder {path.parent} does not exist")
    require_matplotlib()


def save_figure(path: Path, draw: Callable[[], Figure]) -> None:
    """Draws a figure in our style and writes it to a file of its own.

    Raises:
        UserError: `check_target` refuses the path, or the operating system does.
    """
    check_target(path)
    data = io.BytesIO()
    with matplotlib_style():
        kind = path.suffix.lower().removeprefix(".")
        draw().savefig(data, format=kind, dpi=_PNG_DPI)
    with explain_os_errors("write", path):
        write_atomically(path, data.getvalue())


def require_matplotlib() -> None:
    """Refuses to go on without matplotlib, before anything costs time.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(
            "a report needs matplotlib; install it with: pip install 'fedkl[report]'"
        ) from error


@contextmanager
def matplotlib_style() -> Iterator[None]:
    """How our figures look, while they are drawn and rendered; nobody else's change.

    Raises:
        UserError: if matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


def rendered(drawings: Mapping[str, Drawing]) -> dict[str, Picture]:
    """The pictures of drawings, by name; within `matplotlib_style`."""
    return {
        name: Picture(name, drawing.caption, *_svg_and_png(drawing.figure))
        for name, drawing in drawings.items()
    }


def write_figures(
    directory: Path, pictures: Mapping[str, Picture], possible: Iterable[str] = ()
) -> None:
    """Writes the pictures into `figures/`, and removes those that an earlier report left.

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
        folder.mkdir(exist_ok=True)
        for name, picture in pictures.items():
            (folder / f"{name}.svg").write_text(picture.svg, encoding="utf-8")
            (folder / f"{name}.png").write_bytes(picture.png)
        for pattern, suffix in product(possible, ("svg", "png")):
            for path in folder.glob(f"{pattern}.{suffix}"):
                if path.stem not in pictures:
                    path.unlink(missing_ok=True)


def _svg_and_png(figure: Figure) -> tuple[str, bytes]:
    svg, png = io.BytesIO(), io.BytesIO()
    # Without a date and a version the same numbers give the same file.
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")  # the layout is made; making it again takes half the time
    figure.savefig(png, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return svg.getvalue().decode("utf-8"), png.getvalue()
