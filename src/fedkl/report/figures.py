"""The figures of a report.

All figures of quantities over rounds speak one language: a thin line is a seed, the thick line
the interquartile mean over seeds, the band its 95 % bootstrap interval; a colour is an algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedkl.report.groups import MOST_POINTS, Group
from fedkl.report.pictures import Drawing, Picture, matplotlib_style, rendered
from fedkl.report.plotting import MANY, canvas, finish, limit, log_axis, mark_setting, plot
from fedkl.report.runs import LoadedRun
from fedkl.report.statistics import FloatArray, iqm
from fedkl.report.style import MUTED, colours
from fedkl.report.table import minus, number

COEFFICIENT = "coefficient_"  # before the name of a coefficient, the name of its figure

_NOISY = 1.3
_MEANING = {
    "c1": "c1, the penalty on the distance to the global policy",
    "c2": "c2, the penalty on the step of local training",
}


def draw(groups: Sequence[Group], target: float | None) -> dict[str, Picture]:
    """Draws every figure that the runs have numbers for.

    Args:
        groups: the runs by algorithm.
        target: the return marked as the target.

    Returns:
        The pictures by name.
    """
    with matplotlib_style():
        drawings = {
            "learning_curves": _learning_curves(groups, target),
            "deterministic_curves": _deterministic_curves(groups),
            "worst_client": _worst_client(groups),
            "client_spread": _client_spread(groups),
            "client_returns": _client_returns(groups),
            "return_by_megabytes": _return_by_megabytes(groups),
            "kl_local": _kl_local(groups),
            "distance_global": _distance_global(groups),
            **_coefficients(groups),
            "guarded": _trouble(groups, "guarded", "rolled-back iterations so far"),
            "rejected": _trouble(groups, "rejected", "rejected updates so far"),
        }
        alike = (
            ("worst_client", "client_spread", "client_returns") if _clients_alike(groups) else ()
        )
        shown = {name: d for name, d in drawings.items() if d is not None and name not in alike}
        return rendered(shown)


def _clients_alike(groups: Sequence[Group]) -> bool:
    """Whether no client's return was ever another than its neighbour's, as far as is known."""
    known = False
    for run in (run for group in groups for run in (*group.counted, *group.left_out)):
        for found in run.client_returns():
            known = True
            # The logged deviation of equal numbers may be some 1e-14.
            if np.ptp(found.returns) > 0:
                return False
    return known


def _learning_curves(groups: Sequence[Group], target: float | None) -> Drawing | None:
    figure, axes = canvas(6.2, 3.7)
    drawn = plot(axes, groups, "return_mean")
    if not drawn:
        return None
    shades = colours(group.algorithm for group in groups)
    label = "deterministic policy"
    apart = len(groups) > MANY
    for group in () if apart else groups:
        deterministic = group.curves("deterministic_return_mean").thinned()
        if deterministic.rounds.size:
            x, y = deterministic.rounds, deterministic.iqm
            axes.plot(x, y, color=shades[group.algorithm], lw=1, ls=(0, (4, 2)))
            axes.plot([], [], color=MUTED, lw=1, ls=(0, (4, 2)), label=label)
            label = "_"
            drawn.append(y[None, :])
    unfinished = [run for group in groups for run in group.left_out]
    for run in unfinished:
        axes.plot(run.rounds, run.series("return_mean"), "o:", ms=2, lw=1, c=shades[run.algorithm])
    if target is not None:
        axes.axhline(target, color=MUTED, lw=0.9, ls=":", label=f"target {minus(number(target))}")
    note = limit(axes, groups, "return_mean", drawn, "low", target)
    finish(axes, "mean return over clients")
    dashed = "" if apart else " (solid) and with the mean action (dashed)"
    caption = f"Return of the policy with its own exploration noise{dashed}, averaged over clients."
    dotted = " Dotted lines are unfinished runs, which are not counted." if unfinished else ""
    return Drawing(figure, caption + note + dotted)


def _deterministic_curves(groups: Sequence[Group]) -> Drawing | None:
    """A figure of their own where the dashed lines of many algorithms would tangle."""
    key = "deterministic_return_mean"
    if len(groups) <= MANY:
        return None
    figure, axes = canvas(6.2, 3.7)
    drawn = plot(axes, groups, key)
    if not drawn:
        return None
    note = limit(axes, groups, key, drawn, "low")
    finish(axes, "mean return over clients")
    caption = "Return of the policy with the mean action, averaged over clients."
    return Drawing(figure, caption + note)


def _worst_client(groups: Sequence[Group]) -> Drawing | None:
    figure, axes = canvas()
    drawn = plot(axes, groups, "return_min")
    if not drawn:
        return None
    note = limit(axes, groups, "return_min", drawn, "low")
    finish(axes, "return of the worst client")
    return Drawing(
        figure,
        "The lowest client's return in each evaluated round: a federation is only as fair as this "
        "line is high." + note,
    )


def _client_spread(groups: Sequence[Group]) -> Drawing | None:
    figure, axes = canvas()
    drawn = plot(axes, groups, "return_std", width=_NOISY)
    if not drawn:
        return None
    note = limit(axes, groups, "return_std", drawn, "high")
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    finish(axes, "standard deviation over clients")
    return Drawing(
        figure,
        "How far the clients' returns lie apart; lower means that one policy serves them more "
        "equally." + note,
    )


def _client_returns(groups: Sequence[Group]) -> Drawing | None:
    found = {
        group.algorithm: [np.sort(clients.returns) for clients in group.client_returns()]
        for group in groups
        if group.evaluated
    }
    most = max((returns.size for runs in found.values() for returns in runs), default=0)
    if not most:
        return None
    figure, axes = canvas()
    shades = colours(group.algorithm for group in groups)
    for algorithm, runs in found.items():
        colour = shades[algorithm]
        for returns in runs:
            ranked = _thinned(returns, returns.size)
            ranks = np.linspace(1, most, ranked.size)
            axes.plot(ranks, ranked, "o", ms=3, mew=0, alpha=0.35, color=colour)
        if runs:
            fewest = min(returns.size for returns in runs)
            middle = iqm(np.stack([_thinned(returns, fewest) for returns in runs]))
            ranks = np.linspace(1, most, middle.size)
            mark = "o" if middle.size <= 40 else ""
            axes.plot(ranks, middle, color=colour, marker=mark, ms=4.5, label=algorithm)
    finish(axes, "mean return, final rounds", "clients, from the worst off to the best off")
    sampled = any(run.sample_sizes for group in groups for run in group.counted)
    whose = "Every evaluated client's" if sampled else "Every client's"
    quantiles = f" Shown are {MOST_POINTS} evenly spaced ones." if most > MOST_POINTS else ""
    return Drawing(
        figure,
        f"{whose} mean return over the final rounds, sorted within each run; small dots are "
        f"seeds.{quantiles} A curve that drops at the left leaves clients behind.",
    )


def _thinned(ranked: FloatArray, size: int) -> FloatArray:
    """So many evenly spaced quantiles of sorted values, but at most `MOST_POINTS`."""
    here, there = (np.linspace(0, 1, n) for n in (ranked.size, min(size, MOST_POINTS)))
    return np.interp(there, here, ranked)


def _return_by_megabytes(groups: Sequence[Group]) -> Drawing | None:
    from matplotlib.ticker import MaxNLocator

    figure, axes = canvas()
    drawn = plot(axes, groups, "return_mean", over=lambda run: run.megabytes)
    if not drawn or not any(run.megabytes[-1] > 0 for g in groups for run in g.counted):
        return None
    note = limit(axes, groups, "return_mean", drawn, "low")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7))
    axes.set_xlim(left=0)
    finish(axes, "mean return over clients", "communicated so far (MB, both ways, all clients)")
    return Drawing(figure, "What the traffic buys: further left is cheaper." + note)


def _kl_local(groups: Sequence[Group]) -> Drawing | None:
    figure, axes = canvas()
    drawn = plot(axes, groups, "kl_local", width=_NOISY)
    if not drawn:
        return None
    marked = mark_setting(axes, groups, "learner", "d_local")
    log_axis(axes, drawn)
    finish(axes, "KL divergence of a local step")
    steered = " An adaptive penalty steers it to d_local." if marked else ""
    return Drawing(
        figure,
        "How far one iteration of local training moves the policy, mean over clients and "
        f"iterations (logarithmic axis).{steered}",
    )


def _distance_global(groups: Sequence[Group]) -> Drawing | None:
    figure, axes = canvas()
    drawn = plot(axes, groups, "distance_global", width=_NOISY)
    if not drawn:
        return None
    marked = mark_setting(axes, groups, "algorithm", "d_global")
    log_axis(axes, drawn)
    finish(axes, "distance to the global policy")
    steered = " An algorithm with d_global steers it there." if marked else ""
    return Drawing(
        figure,
        "How far the clients' policies have drifted from the global one at the end of a round, "
        f"mean over clients (logarithmic axis).{steered}",
    )


def _coefficients(groups: Sequence[Group]) -> dict[str, Drawing | None]:
    """A figure for each coefficient that any of the runs adapts."""
    names = {name for group in groups for run in group.counted for name in run.coefficients}
    return {COEFFICIENT + _in_letters(name): _coefficient(groups, name) for name in sorted(names)}


def _in_letters(name: str) -> str:
    """A name that files and ids can have; no two names become the same."""
    return "".join(c if c.isalnum() or c == "_" else f"-{ord(c):x}-" for c in name)


def _coefficient(groups: Sequence[Group], name: str) -> Drawing | None:
    figure, axes = canvas()
    drawn = plot(axes, groups, lambda run: run.coefficient(name), width=_NOISY)
    if not drawn:
        return None
    log_axis(axes, drawn)
    finish(axes, f"coefficient {name}")
    meaning = _MEANING.get(name, f"Penalty coefficient {name}")
    return Drawing(figure, f"{meaning}, mean over clients (logarithmic axis).")


def _trouble(groups: Sequence[Group], key: str, label: str) -> Drawing | None:
    """Running totals of what should not happen; None if it never did."""

    def total(run: LoadedRun) -> FloatArray:
        return np.nancumsum(run.rejections if key == "rejected" else run.series(key))

    if not any(total(run)[-1] > 0 for group in groups for run in group.counted):
        return None
    figure, axes = canvas()
    plot(axes, groups, total)
    axes.set_ylim(bottom=0)
    finish(axes, label)
    meaning = {
        "guarded": "Iterations of local training that were undone because they went wrong, added "
        "up over rounds. A line that keeps climbing asks for smaller steps.",
        "rejected": "Client updates that the server refused to aggregate, added up over rounds.",
    }
    return Drawing(figure, meaning[key])
