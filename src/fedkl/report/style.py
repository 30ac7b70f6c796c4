"""The style of figures: colours, line weights, and the ranges of axes."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any

import numpy as np

from fedkl.report.statistics import FloatArray

# Okabe and Ito's colours, which people with any of the common colour deficiencies tell apart.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, BROWN = "#E69F00", "#56B4E9", "#000000", "#8C6D1F"

_KNOWN = {
    "fedkl": BLUE,
    "fedkl-anchored": ORANGE,
    "fedavg": VERMILLION,
    "fedprox": GREEN,
    "fmarl": PURPLE,
    "scaffold": SKY,
}
_GREY = "#8c96a1"
_SPARE = (BLACK, BROWN, "#6A51A3", "#7F7F7F")

INK = "#1f2933"
MUTED = "#6b7785"
GRID = "#e6e9ed"
EDGE = "#b8c0c9"
BEHIND = "#c9d0d7"  # lines of other algorithms
SHADE = "#eef1f4"  # what a close-up shows
_PAPER = "#ffffff"

REFERENCES = {"each alone": (_GREY, (0, (7, 3))), "centralised": (MUTED, (0, (4, 1.5, 1, 1.5)))}
"""Colour and dashes of what the others are seen against."""

# The page names these, so that it can have others in the dark; files keep them as they are.
_NAMED = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    EDGE: "edge",
    BEHIND: "behind",
    SHADE: "shade",
    _PAPER: "paper",
    BLUE: "blue",
    VERMILLION: "vermillion",
    GREEN: "green",
    PURPLE: "purple",
    ORANGE: "orange",
    SKY: "sky",
    BLACK: "black",
    BROWN: "brown",
}
_VARIABLES = {colour.lower(): f"var(--{name})" for colour, name in _NAMED.items()}

# Kept in a context while drawing and saving, so that other figures do not change. A fixed salt
# makes the ids inside the SVG, and so the whole file, the same every time.
RC: Any = {
    "svg.hashsalt": "fedkl",
    "pdf.fonttype": 42,  # whole letters, as journals ask for, and text that can be searched
    # Names come from runs, and a dollar sign in one begins no formula.
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": EDGE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.xmargin": 0.02,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "path.simplify": True,
}


def colours(algorithms: Iterable[str]) -> dict[str, str]:
    """Return one colour for each algorithm, or whatever else is called by a name of its own.

    Our own algorithms have the same one in every report; others, such as the cells of a sweep, have
    those that are left.
    """
    names = list(dict.fromkeys(algorithms))
    taken = {_KNOWN[name] for name in names if name in _KNOWN}
    left = [colour for colour in _KNOWN.values() if colour not in taken]
    spare = chain([*_SPARE, *left] if taken else [*left, *_SPARE], map(_hue, count()))
    return {name: _KNOWN[name] if name in _KNOWN else next(spare) for name in names}


def _hue(number: int) -> str:
    """Return one of any number of colours, each far from those before it."""
    golden = 0.381966
    rgb = colorsys.hls_to_rgb(number * golden % 1.0, (0.35, 0.5, 0.6)[number % 3], 0.6)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def themed(text: str) -> str:
    """SVG or CSS whose colours are those that the page names.

    Example:
        >>> themed("fill: #0072b2; stroke: #123456")
        'fill: var(--blue); stroke: #123456'
    """
    return re.sub(r"#[0-9a-fA-F]{6}\b", lambda c: _VARIABLES.get(c[0].lower(), c[0]), text)


def robust_range(
    samples: Sequence[FloatArray], keep: Sequence[float], cut: str
) -> tuple[float, float, float | None]:
    """Return a range of the y axis that a few extreme early values do not stretch.

    The axis shows at least: four fifths of all values, twice the range that the values of
    the later half of the rounds span, and every value of `keep`. It is cut only if that leaves
    out more than a third of the whole range; else all is shown.

    Args:
        samples: the values drawn, of shape (runs, rounds).
        keep: values that must be visible, such as where each algorithm ended.
        cut: "low" or "high", the end where the extreme values are.

    Returns:
        The lower end, the upper end, and the most extreme value left out (None if none is).
    """
    values = np.concatenate([np.ravel(s) for s in samples])
    late = np.concatenate([np.ravel(s[:, s.shape[1] // 2 :]) for s in samples])
    room = 2 * float(np.ptp(late))
    low, high = float(values.min()), float(values.max())
    extreme = None
    if cut == "low":
        inner = min(float(np.quantile(values, 0.2)), high - room, *keep)
        if high - inner < (high - low) * 2 / 3:
            low, extreme = inner, low
    else:
        inner = max(float(np.quantile(values, 0.8)), low + room, *keep)
        if inner - low < (high - low) * 2 / 3:
            high, extreme = inner, high
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return low - margin, high + margin, extreme
