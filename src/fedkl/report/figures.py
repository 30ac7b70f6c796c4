"""The figures of a report.

All figures of quantities over rounds speak one language: a thin line is a seed, the thick line
the interquartile mean over seeds, the band its 95 % bootstrap interval; a colour is an algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedkl.report.charts import MOST_PANELS, Chart, Mark, draw_chart
from fedkl.report.groups import (
    MOST_DRAWN,
    MOST_POINTS,
    Group,
    Series,
    drawn,
    judged,
    levels,
    worlds,
)
from fedkl.report.lines import (
    MOST_SEEDS,
    X_AXES,
    canvas,
    dashes_of,
    draw_line,
    label_axes,
    lines_of,
    room_for,
    shades_of,
)
from fedkl.report.paper import draw_paper
from fedkl.report.pictures import Drawing, Picture, Trace, matplotlib_style, rendered
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import FloatArray, estimate, iqm
from fedkl.report.style import MUTED, colours
from fedkl.report.table import minus, number
from fedkl.training.records import is_number

COEFFICIENT = "coefficient_"  # before the name of a coefficient, the name of its figure

_NOISY = 1.3
_MEANING = {
    "c1": "c1, the penalty on the distance to the global policy",
    "c2": "c2, the penalty on the step of local training",
}


def draw(
    groups: Sequence[Group],
    target: float | None,
    x: str = "rounds",
    alike: Group | None = None,
) -> dict[str, Picture]:
    """Draw every figure that the runs have numbers for.

    Args:
        groups: the runs by algorithm.
        target: the return marked as the target.
        x: of `lines.X_AXES`, what figures of a quantity over rounds have from left to right.
        alike: runs on clients that are alike, to see the return against.

    Returns:
        The pictures by name.
    """
    every, groups = groups, drawn(groups)
    own = judged(groups)  # references are drawn where the axis shows returns
    with matplotlib_style():
        drawings = {
            "learning_curves": _learning_curves(groups, target, x),
            "worst_client": _worst_client(groups, x),
            "client_spread": _client_spread(groups, x),
            "return_by_megabytes": None if x == "bytes" else _return_by_megabytes(own),
            "kl_local": _kl_local(own, x),
            "distance_global": _distance_global(own, x),
            **_coefficients(own, x),
            "guarded": _trouble(own, "guarded", x),
            "rejected": _trouble(own, "rejected", x),
        }
        drawings["return_by_level"] = _return_by_level(judged(every))
        drawings["client_returns"] = _client_returns(groups)
        drawings["price"] = None if alike is None else _price(groups, alike, x)
        drawings["paper"] = draw_paper(groups, x)
        same = ("worst_client", "client_spread", "client_returns") if _clients_alike(groups) else ()
        shown = {name: d for name, d in drawings.items() if d is not None and name not in same}
        return rendered(shown)


def _price(groups: Sequence[Group], alike: Group, x: str) -> Drawing | None:
    """Draw the return beside that on clients that are alike, in black."""
    shown = [alike, *groups]
    lines = lines_of(shown, "return_mean", X_AXES[x].over)
    if not lines:
        return None
    figure, axes = canvas(6.2, 3.1)
    for line in lines:
        draw_line(axes, line, spread=line.dashes == "-")
    low, high, _ = room_for(shown, "return_mean", [line.values for line in lines], "low")
    axes.set_ylim(low, high)
    label_axes(axes, "mean return over clients", X_AXES[x].label)
    traces = [Trace(axes, line.name, line.colour, line.x, line.summary) for line in lines]
    return Drawing(
        figure,
        "What heterogeneity costs, and what is won back",
        f"{alike.label} is what the other algorithms could come to if all clients were alike.",
        traces,
        columns=2,
        printed=True,
    )


def _clients_alike(groups: Sequence[Group]) -> bool:
    """Return True if all clients always had the same return, as far as is known."""
    known = False
    for run in (run for group in groups for run in (*group.counted, *group.left_out)):
        for found in run.client_returns():
            known = True
            # The logged deviation of equal numbers may be some 1e-14.
            if np.ptp(found.returns) > 0:
                return False
    return known


def _learning_curves(
    groups: Sequence[Group], target: float | None, x: str = "rounds"
) -> Drawing | None:
    chart = Chart(
        "Return of the policy",
        "return_mean",
        "mean return over clients",
        cut="low",
        dashed=("deterministic_return_mean", "deterministic policy"),
        marks=[]
        if target is None
        else [Mark(target, f"target {minus(number(target))}", dashes=":")],
        unfinished=True,
    )
    caption = "Return of the policy with its own exploration noise, averaged over clients."
    if len(judged(groups)) <= MOST_PANELS:
        caption = (
            "Return of the policy with its own exploration noise (solid) and with the mean action "
            "(dashed), averaged over clients."
        )
    if any(group.left_out for group in groups):
        caption += " Dotted lines are unfinished runs, which are not counted."
    return draw_chart(groups, chart, caption, x)


def _return_by_level(groups: Sequence[Group]) -> Drawing | None:
    """Draw what each algorithm ends with against the settings of the world, a line for each."""
    tasks = [level for level, own in levels(groups).items() if any(g.evaluated for g in own)]
    methods = list(dict.fromkeys(group.method for group in groups if group.evaluated))
    if len(tasks) < 2 or len(worlds(groups)) > 1 or not 0 < len(methods) <= MOST_DRAWN:
        return None
    names, places = _places(tasks)
    figure, axes = canvas()
    traces = []
    for rank, (method, colour) in enumerate(colours(methods).items()):
        own = {g.level: estimate(g.finals()) for g in groups if g.evaluated and g.method == method}
        x = np.array([places[level] for level in tasks if level in own])
        found = [own[level] for level in tasks if level in own]
        order = np.argsort(x, kind="stable")
        ends = np.array([(f.value, f.low, f.high) for f in found], dtype=np.float64)[order].T
        # Side by side, so that intervals do not hide each other.
        aside = 0.012 * np.ptp([*places.values()]) * (rank - (len(methods) - 1) / 2)
        drawn_at = x[order] + aside
        if np.isfinite(ends).all():
            axes.vlines(drawn_at, ends[1], ends[2], color=colour, lw=1.2, alpha=0.6)
        axes.plot(drawn_at, ends[0], color=colour, marker="o", ms=4, label=method)
        summary = ends if np.isfinite(ends).all() else ends[:1]
        traces.append(Trace(axes, method, colour, x[order], summary))
    axes.set_xticks([*places.values()], names)
    label_axes(axes, "mean return, final rounds", _common_name(tasks))
    return Drawing(
        figure,
        "Return against the world",
        "What each algorithm ends with (interquartile mean over seeds, and its 95 % interval) in "
        "each variant of the world. Variants are different tasks: compare lines at one place.",
        traces,
        printed=True,
    )


def _places(tasks: Sequence[str]) -> tuple[list[str], dict[str, float]]:
    """Name levels on an axis, and place them: by the number that they differ in, or evenly."""
    texts = [task.partition("=")[2] if _common_name(tasks) else task for task in tasks]
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        numbers = []
    spaced = len({*numbers}) == len(tasks) and np.isfinite(numbers).all()
    at = numbers if spaced else [float(place) for place in range(len(tasks))]
    return texts, dict(zip(tasks, at, strict=True))


def _common_name(tasks: Sequence[str]) -> str:
    """The setting in which levels differ, if it is one; else nothing."""
    names = {task.partition("=")[0] for task in tasks}
    return names.pop() if len(names) == 1 and not any(" " in task for task in tasks) else ""


def _worst_client(groups: Sequence[Group], x: str = "rounds") -> Drawing | None:
    title, label = "Return of the worst client", "return of the worst client"
    return draw_chart(
        groups,
        Chart(title, "return_min", label, cut="low"),
        "The lowest client's return in each evaluated round: a federation is only as fair as this "
        "line is high.",
        x,
    )


def _client_spread(groups: Sequence[Group], x: str = "rounds") -> Drawing | None:
    title, label = "How far the clients lie apart", "standard deviation over clients"
    return draw_chart(
        groups,
        Chart(title, "return_std", label, width=_NOISY, cut="high", from_zero=True),
        "How far the clients' returns lie apart; lower means that one policy serves them more "
        "equally.",
        x,
    )


def _client_returns(groups: Sequence[Group]) -> Drawing | None:
    found = [
        (group, [np.sort(clients.returns) for clients in group.client_returns()])
        for group in groups
        if group.evaluated
    ]
    most = max((returns.size for _, runs in found for returns in runs), default=0)
    if not most:
        return None
    figure, axes = canvas()
    shades = shades_of(groups)
    traces = []
    for group, runs in found:
        label, dashes = group.label, dashes_of(group, groups)
        colour = shades[label]
        for returns in runs if len(runs) <= MOST_SEEDS else ():
            ranked = _thinned(returns, returns.size)
            ranks = np.linspace(1, most, ranked.size)
            axes.plot(ranks, ranked, "o", ms=3, mew=0, alpha=0.35, color=colour)
        if runs:
            fewest = min(returns.size for returns in runs)
            middle = iqm(np.stack([_thinned(returns, fewest) for returns in runs]))
            ranks = np.linspace(1, most, middle.size)
            mark = "o" if middle.size <= 40 else ""
            axes.plot(ranks, middle, color=colour, ls=dashes, marker=mark, ms=4.5, label=label)
            traces.append(Trace(axes, label, colour, ranks, middle[None, :]))
    label_axes(axes, "mean return, final rounds", "clients, from the worst off to the best off")
    sampled = any(run.sample_sizes for group in groups for run in group.counted)
    whose = "Every evaluated client's" if sampled else "Every client's"
    quantiles = f" Shown are {MOST_POINTS} evenly spaced ones." if most > MOST_POINTS else ""
    return Drawing(
        figure,
        "What each client ends with",
        f"{whose} mean return over the final rounds, sorted within each run; small dots are "
        f"seeds.{quantiles} A curve that drops at the left leaves clients behind.",
        traces,
    )


def _thinned(ranked: FloatArray, size: int) -> FloatArray:
    """Return so many evenly spaced quantiles of sorted values, but at most `MOST_POINTS`."""
    here, there = (np.linspace(0, 1, n) for n in (ranked.size, min(size, MOST_POINTS)))
    return np.interp(there, here, ranked)


def _return_by_megabytes(groups: Sequence[Group]) -> Drawing | None:
    if not any(run.megabytes[-1] > 0 for g in groups for run in g.counted):
        return None
    chart = Chart(
        "What the traffic buys",
        "return_mean",
        "mean return over clients",
        "communicated so far (MB, both ways, all clients)",
        over=lambda run: run.megabytes,
        cut="low",
    )
    return draw_chart(groups, chart, "Return against traffic: further left is cheaper.")


def _kl_local(groups: Sequence[Group], x: str = "rounds") -> Drawing | None:
    marks = _settings(groups, "learner", "d_local")
    steered = " An adaptive penalty steers it to d_local." if marks else ""
    return draw_chart(
        groups,
        _logarithmic("How far a local step goes", "kl_local", "KL divergence of a step", marks),
        "How far one iteration of local training moves the policy, mean over clients and "
        f"iterations (logarithmic axis).{steered}",
        x,
    )


def _distance_global(groups: Sequence[Group], x: str = "rounds") -> Drawing | None:
    marks = _settings(groups, "algorithm", "d_global")
    steered = " An algorithm with d_global steers it there." if marks else ""
    title = "How far clients drift from the global policy"
    return draw_chart(
        groups,
        _logarithmic(title, "distance_global", "distance", marks),
        "How far the clients' policies have drifted from the global one at the end of a round, "
        f"mean over clients (logarithmic axis).{steered}",
        x,
    )


def _logarithmic(title: str, series: Series, ylabel: str, marks: Sequence[Mark] = ()) -> Chart:
    return Chart(title, series, ylabel, width=_NOISY, log=True, marks=marks)


def _settings(groups: Sequence[Group], table: str, key: str) -> list[Mark]:
    """Return the value of a setting as a line: grey if algorithms share it, else in the owner's
    colour."""
    found = {g.label: g.counted[0].setting(table, key) for g in groups}
    known = {name: float(v) for name, v in found.items() if is_number(v)}
    values = {name: v for name, v in known.items() if math.isfinite(v)}
    shades = colours(found)
    marks = []
    for value in sorted(set(values.values())):
        owners = [name for name, v in values.items() if v == value]
        colour = shades[owners[0]] if len(owners) == 1 < len(groups) else MUTED
        marks.append(Mark(value, f"{key} = {value:g}", colour))
    return marks


def _coefficients(groups: Sequence[Group], x: str) -> dict[str, Drawing | None]:
    """Draw a figure for each coefficient that any of the runs adapts."""
    names = {name for group in groups for run in group.counted for name in run.coefficients}
    return {
        COEFFICIENT + _in_letters(name): _coefficient(groups, name, x) for name in sorted(names)
    }


def _in_letters(name: str) -> str:
    """Return a name that files and ids can have; no two names become the same."""
    return "".join(c if c.isalnum() or c == "_" else f"-{ord(c):x}-" for c in name)


def _coefficient(groups: Sequence[Group], name: str, x: str) -> Drawing | None:
    title = f"Penalty coefficient {name}"
    meaning = _MEANING.get(name, title)
    return draw_chart(
        groups,
        _logarithmic(title, lambda run: run.coefficient(name), f"coefficient {name}"),
        f"{meaning}, mean over clients (logarithmic axis).",
        x,
    )


_TROUBLE = {
    "guarded": (
        "Rolled-back iterations so far",
        "rolled back",
        "Iterations of local training that were undone because they went wrong, added up over "
        "rounds. A line that keeps climbing asks for smaller steps.",
    ),
    "rejected": (
        "Rejected updates so far",
        "rejected",
        "Client updates that the server refused to aggregate, added up over rounds.",
    ),
}


def _trouble(groups: Sequence[Group], key: str, x: str) -> Drawing | None:
    """Running totals of what should not happen; None if it never did."""

    def total(run: LoadedRun) -> FloatArray:
        return np.nancumsum(run.rejections if key == "rejected" else run.series(key))

    if not any(total(run)[-1] > 0 for group in groups for run in group.counted):
        return None
    title, ylabel, caption = _TROUBLE[key]
    return draw_chart(groups, Chart(title, total, ylabel, from_zero=True), caption, x)
