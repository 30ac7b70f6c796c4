"""The figures of the page on theory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkl.report.lines import canvas, label_axes
from fedkl.report.pictures import Drawing, Picture, Trace, matplotlib_style, rendered
from fedkl.report.style import (
    BLACK,
    BLUE,
    BROWN,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
)
from fedkl.report.table import minus
from fedkl.report.theory.claims import THRESHOLD, of_the_paper, tightness
from fedkl.tabular.claims import VACUOUS_FROM
from fedkl.tabular.studies import ALIKE, Improvement, Movement, Setting, Slopes, Studies
from fedkl.tabular.verification import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_LEAST_RATIO = 0.01  # what is further left in the figure of Corollary 1 is all alike


@dataclass(frozen=True)
class _Line:
    """The line of an algorithm, the same in every figure."""

    label: str
    colour: str
    dashes: Any = "-"
    width: float = 1.8

    @property
    def style(self) -> dict[str, Any]:
        """Arguments of matplotlib's `plot`."""
        return {"label": self.label, "color": self.colour, "ls": self.dashes, "lw": self.width}


_LINES = {
    "paper": _Line("paper", VERMILLION, width=2.2),
    "corrected": _Line("corrected constant", BROWN, (0, (5, 1.5))),
    "second-order": _Line("second-order", BLUE, width=2.6),
    "second-order-exact": _Line("second-order-exact", SKY, (0, (4, 2))),
    "anchored": _Line("anchored", BROWN, (0, (8, 2))),
    "own-states": _Line("own-states", MUTED, (0, (2, 2))),
    "common-radius": _Line("common-radius", GREEN, (0, (6, 1.5, 1, 1.5))),
    "line-search": _Line("line-search", BLACK, width=1.2),
    "qavg": _Line("qavg", ORANGE, (0, (1.2, 1.2))),
    "pavg": _Line("pavg", PURPLE, (0, (3, 1.2, 1, 1.2, 1, 1.2))),
}


def draw_theory(results: Sequence[Result], studies: Studies) -> dict[str, Picture]:
    """Draw every figure of the page; names begin with `theory_`."""
    with matplotlib_style():
        drawings = {f"theory_movement_{m.setting.name}": _movement(m) for m in studies.movements}
        for found in studies.improvements:
            drawings[f"theory_improvement_{found.setting.name}"] = _improvement(found)
        drawings["theory_tightness"] = _tightness(results)
        drawings["theory_corollary_1"] = _corollary_1(studies.slopes)
        return rendered(drawings)


def _movement(found: Movement) -> Drawing:
    figure, axes = canvas()
    traces = []
    for name, shares in found.shares.items():
        line = _LINES[name]
        axes.plot(found.gammas, 100 * shares, **line.style)
        traces.append(Trace(axes, line.label, line.colour, found.gammas, 100 * shares[None, :]))
    # Labels beside these two lines would be crossed by curves in one figure or another.
    for gamma in (VACUOUS_FROM, 0.5):
        axes.axvline(gamma, color=INK, lw=0.9, ls=":")
    axes.set_xticks([0, VACUOUS_FROM, 0.5, 0.75, 1], ["0", THRESHOLD, "1/2", "0.75", "1"])
    axes.set_xlim(0, 1)
    axes.set_ylim(-4, 104)
    label_axes(axes, "agents that move (%)", "discount gamma")
    agents = f"Agents that {found.setting.words}."
    if found.setting == ALIKE:
        agents += (
            f" From the dotted lines on the paper's constants ({THRESHOLD}) and the corrected "
            "ones (1/2) provably leave no agent a step to make."
        )
    elif not found.shares["paper"].any():
        agents += " With the paper's objective no agent moves at any of these discounts."
    else:
        last = found.gammas[found.shares["paper"] > 0].max()
        agents += f" With the paper's objective the last agents move at gamma = {last:g}."
    return Drawing(figure, _title("Who moves", found.setting), agents, traces, columns=2)


def _improvement(found: Improvement) -> Drawing:
    figure, axes = canvas(5.4, 3.3)
    traces = []
    for name in found.shares:
        line, curve = _LINES[name], found.curve(name)
        low, high = 100 * curve.low, 100 * curve.high
        axes.fill_between(curve.rounds, low, high, color=line.colour, alpha=0.1, lw=0)
        # Where lines lie on each other the thinner one is on top, and all are seen.
        axes.plot(curve.rounds, 100 * curve.mean, zorder=5 - line.width, **line.style)
        axes.plot(curve.rounds[-1], 100 * curve.mean[-1], "o", ms=4, color=line.colour)
        summary = 100 * np.stack([curve.mean, curve.low, curve.high])
        traces.append(Trace(axes, line.label, line.colour, curve.rounds, summary))
    _log_x(axes)
    axes.set_ylim(-4, 104)
    label_axes(axes, "possible improvement reached (%)", "round")
    lost = [name for name in found.shares if name not in found.monotone]
    families = next(iter(found.shares.values())).shape[1]
    return Drawing(
        figure,
        _title("How far", found.setting),
        f"Agents that {found.setting.words}: mean over {families} families, the band from the "
        "lowest to the highest, a dot where we stopped. Algorithms that lost in some round: "
        f"{', '.join(lost) or 'none'}.",
        traces,
        columns=3,
    )


def _tightness(results: Sequence[Result]) -> Drawing:
    # How tight a bound is that does not hold is no question.
    bounds = [result for result in results if result.looseness.size and not result.violations]
    figure, axes = canvas(6.0, 0.7 + 0.27 * len(bounds))
    labels = {True: "the paper's", False: "ours"}
    for row, result in enumerate(bounds):
        least, low, middle, high = tightness(result)
        printed = of_the_paper(result.claim)
        colour = VERMILLION if printed else BLUE
        axes.plot([least, low], [row, row], color=colour, lw=1, marker="|", ms=6, markevery=[0])
        axes.plot([low, high], [row, row], color=colour, lw=4, alpha=0.35, solid_capstyle="butt")
        axes.plot(middle, row, "o", ms=5, color=colour, label=labels.pop(printed, "_"))
    axes.axvline(1.0, color=INK, lw=0.9, ls=":")
    axes.text(1.0, -0.8, " attained", color=INK, fontsize=9, va="center")
    _log_x(axes)
    axes.set_yticks(range(len(bounds)), [result.claim.name for result in bounds], color=INK)
    axes.set_ylim(len(bounds) - 0.4, -1.3)
    axes.grid(visible=False, axis="y")
    label_axes(axes, "", "penalty over gap (how many times what it has to cover)")
    return Drawing(
        figure,
        "How tight the bounds are",
        "How much more than necessary each bound takes off, over all cases with a gap: the tick is "
        "the least, the bar reaches from 5 % to 95 % of the cases, the dot is the median "
        "(logarithmic axis). Names are those of the table.",
    )


def _corollary_1(found: Slopes) -> Drawing:
    figure, axes = canvas(6.2, 3.3)
    near = found.ratio >= _LEAST_RATIO
    groups = {
        "improves although the corollary excludes it": (found.contradicts, VERMILLION, 0.8),
        "excluded, and does not improve": (found.excluded & ~found.contradicts, BLUE, 0.8),
        "not excluded": (near & ~found.excluded, MUTED, 0.3),
    }
    for label, (where, colour, alpha) in groups.items():
        x, y = found.ratio[where], found.cosine[where]
        style: dict[str, Any] = {"color": colour, "alpha": alpha}
        axes.plot(x, y, "o", ms=3.5, mew=0, label=f"{label} ({x.size})", **style)
    axes.axvline(1.0, color=INK, lw=0.9, ls=":")
    axes.axhline(0.0, color=INK, lw=0.9, ls=":")
    _log_x(axes)
    axes.set_xlim(left=_LEAST_RATIO)
    axes.set_ylim(-1.05, 1.05)
    label_axes(axes, "normalised slope of eta", "||B_n||_F / ||A_n||_F")
    caption = (
        "Each dot is an agent that makes a small step pi (1 + t A_n) of its own. Its height is the "
        "slope of the global objective along that step, the cosine between A_n and A_n + B_n in "
        "E[X Y] under rho_n and pi: above 0 the objective rises. Corollary 1 excludes that to the "
        "right of 1."
    )
    if not near.all():
        least = math.floor(1000 * found.cosine[~near].min()) / 1000
        caption += (
            f" Not drawn: {(~near).sum()} agents further left than {_LEAST_RATIO:g}, at slopes of "
            f"{least:g} or more."
        )
    return Drawing(figure, "What Corollary 1 excludes, and what happens", minus(caption), columns=1)


def _title(question: str, setting: Setting) -> str:
    return f"{question}: agents that {setting.words}"


def _log_x(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _power_of_ten(value)))


def _power_of_ten(value: float) -> str:
    """Return a tick's label: plain up to a thousand, then a power."""
    if value < 1e4:
        return f"{value:g}"
    return "10" + str(round(math.log10(value))).translate(_SUPERSCRIPTS)
