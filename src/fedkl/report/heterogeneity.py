"""A figure of how heterogeneous clients are: what each could gain, what of it is its own, and G."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkl.report.pictures import save_figure
from fedkl.report.style import BLUE, INK, MUTED, VERMILLION

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELLED = 60


def write_figure(path: Path, levels: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draws what was measured of clients into a file.

    Args:
        path: ends in .png, .svg or .pdf.
        levels: a row for each client, as the log has it.
        title: above the figure.

    Raises:
        UserError: the file cannot be written.
    """
    save_figure(path, lambda: _figure(levels, title))


def _figure(levels: Sequence[Mapping[str, Any]], title: str) -> Figure:
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
    if len(ordered) <= _LABELLED:
        many = len(ordered) > 20
        names = [str(row["client"]) for row in ordered]
        alignment.set_xticks(x, names, fontsize=7 if many else 9, rotation=90 if many else 0)
    alignment.set_xlabel("client, by G = ‖DA‖ - ‖DB‖, largest first; orange: below 0")
    figure.suptitle(title, x=0.02, ha="left", size=11)
    return figure
