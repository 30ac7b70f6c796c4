"""The cost of averaging parameters beside averaging policies, and the mean of a divergence beside
its maximum: what the paper's theory has, and what its algorithm does instead."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedkl.experiments.reproduce.experiment import (
    OPEN,
    Case,
    Experiment,
    ExperimentResult,
    Rows,
    Runs,
    Verdict,
)
from fedkl.experiments.reproduce.judges.curves import CaseCurves, case_curves
from fedkl.experiments.reproduce.results import column
from fedkl.experiments.reproduce.statistics import (
    correlation,
    stages,
    together,
    verdict,
    within_stages,
)
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.lines import round_ticks
from fedkl.report.statistics import (
    Estimate,
    FloatArray,
    IntArray,
    difference,
    estimate,
    iqm,
    resampled,
)
from fedkl.report.style import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN = 0.05
"""Of what a case gains in return: an average that costs less a round can stand for the mixture."""
ALIKE = 0.5
"""A rank correlation above it: where the mean is large the maximum is, too."""
_OWN = ("member_distance_mean", "member_distance_max")
_ELSEWHERE = ("member_distance_mean_elsewhere", "member_distance_max_elsewhere")
_RETURNS = {
    "return_mean": ("average of parameters", "-"),
    "mixture_return_mean": ("mixture of policies", "--"),
    "member_return_mean": ("clients' policies (mean)", ":"),
}


class Compared(NamedTuple):
    """A case: what its rounds say of averages and of divergences."""

    case: Case
    curves: dict[str, CaseCurves]
    """By column."""
    costs: FloatArray
    """The median over rounds of the mixture's return less the average's, of each seed."""
    gained: float
    """What the return of the average gained, from the first round to the last ones."""
    tv: float
    """Between the mixture and the average, the median over rounds."""
    distances: dict[str, float]
    """By column, the median over rounds."""
    alike: Estimate
    """The rank correlation of the mean and the maximum of the distance in a client's own states."""
    before_loss: tuple[float, float]
    """Those of the mean and of the maximum with the loss of return in the round."""

    @property
    def name(self) -> str:
        """As a table has it."""
        return f"{self.curves['return_mean'].name}, {self.case.title}"


def judge_averaging(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """Is the average as good as the mixture, and does the mean of a divergence say the same as its
    maximum?"""
    found = [
        _compare(case, runs[case.name])
        for case in experiment.cases
        if runs.get(case.name) and _measured(runs[case.name])
    ]
    head = [
        "algorithm",
        "seeds",
        "final return",
        "mixture less average",
        "total variation",
        "distance: mean",
        "maximum",
        "elsewhere: mean",
        "maximum",
        "mean and maximum, rank correlation",
        "mean and loss",
        "maximum and loss",
    ]
    text = (
        "Medians over rounds; the distance is sqrt(KL / 2) between the global policy and a "
        "client's after its round, in the states that the global policy visits in the client's own "
        "world, and elsewhere in those of all others. Rank correlations are among ten rounds of a "
        "run; the loss is that of the global policy's return in the round.\n\n"
        f"{table(head, [_line(one) for one in found])}\n"
    )
    verdicts = [_parameters(found), _mean(found)]
    return ExperimentResult([_row(one) for one in found], partial(_figure, found), text, verdicts)


def _measured(seeds: Mapping[int, Rows]) -> bool:
    return all(np.isfinite(column(rows, "mixture_return_mean")).any() for rows in seeds.values())


def _compare(case: Case, seeds: Mapping[int, Rows]) -> Compared:
    names = [*_RETURNS, *_OWN, *_ELSEWHERE]
    curves = {name: case_curves(case, seeds, name) for name in names}
    returns = curves["return_mean"]

    def median(name: str) -> float:
        return float(np.nanmedian(np.concatenate([column(rows, name) for rows in seeds.values()])))

    costs = [
        np.nanmedian(column(rows, "mixture_return_mean") - column(rows, "return_mean"))
        for rows in (seeds[seed] for seed in returns.seeds)
    ]
    loss = {
        seed: np.append(np.nan, -np.diff(column(rows, "return_mean")))
        for seed, rows in seeds.items()
    }
    mean, most = ({seed: column(rows, name) for seed, rows in seeds.items()} for name in _OWN)
    return Compared(
        case=case,
        curves=curves,
        costs=np.array(costs),
        gained=float((returns.finals() - returns.values[:, 0]).mean()),
        tv=median("mixture_tv"),
        distances={name: median(name) for name in (*_OWN, *_ELSEWHERE)},
        alike=_ranked(mean, most),
        before_loss=(_ranked(mean, loss, False).value, _ranked(most, loss, False).value),
    )


def _ranked(x: dict[int, FloatArray], y: dict[int, FloatArray], interval: bool = True) -> Estimate:
    """The rank correlation of two columns among the rounds of a stage; NaN if there is none."""
    known = [
        (seed, t + 1, x[seed][t], y[seed][t])
        for seed in x
        for t in range(len(x[seed]))
        if np.isfinite([x[seed][t], y[seed][t]]).all()
    ]
    if len(known) < 2:
        return Estimate(float("nan"))
    runs, rounds, first, second = zip(*known, strict=True)
    stage = stages(runs, rounds, first=1)
    ranks = [within_stages(np.array(values), stage) for values in (first, second)]

    def of(rows: IntArray) -> float:
        return correlation(ranks[0][rows], ranks[1][rows])

    return resampled(of, stage) if interval else Estimate(of(np.arange(len(stage))))


def _parameters(found: list[Compared]) -> Verdict:
    """Judge whether averaging parameters costs little of what is gained.

    Where nothing is gained, nothing says what little is. That was added when the first runs were
    in: before, a share of a loss was the limit.
    """
    if not found:
        return Verdict("parameters", OPEN, "the runs are not there yet.")
    parts = [
        OPEN
        if one.gained <= 0
        else verdict(difference(np.full(len(one.costs), MARGIN * one.gained), one.costs))
        for one in found
    ]
    said = "; ".join(
        f"{one.name} {interval_text(estimate(one.costs), 2)} where it gains "
        f"{f'{one.gained:.3g}' if one.gained > 0 else 'nothing'}"
        for one in found
    )
    return Verdict(
        "parameters",
        together(parts),
        f"the mixture's return less the average's, median over rounds: {said} (small is less than "
        f"{MARGIN:.0%} of that).",
    )


def _mean(found: list[Compared]) -> Verdict:
    if not found:
        return Verdict("mean", OPEN, "the runs are not there yet.")
    parts = [verdict(one.alike.above(ALIKE)) for one in found]
    said = "; ".join(
        f"{one.name} {interval_text(one.alike, 2)}, the maximum "
        f"{one.distances[_OWN[1]] / one.distances[_OWN[0]]:.2g} times the mean"
        for one in found
    )
    return Verdict(
        "mean",
        together(parts),
        f"rank correlation of the mean distance and the largest: {said} (alike is above {ALIKE}).",
    )


def _line(one: Compared) -> list[str]:
    return [
        one.name,
        f"{len(one.costs)}",
        interval_text(estimate(one.curves["return_mean"].finals())),
        interval_text(estimate(one.costs), 2),
        f"{one.tv:.2g}",
        *(f"{one.distances[name]:.2g}" for name in (*_OWN, *_ELSEWHERE)),
        interval_text(one.alike, 2),
        *(f"{found:.2g}" for found in one.before_loss),
    ]


def _row(one: Compared) -> dict[str, Any]:
    return {
        "group": one.case.group,
        **one.curves["return_mean"].summary(),
        "mixture_less_average": estimate(one.costs).value,
        "gained": one.gained,
        "tv": one.tv,
        **one.distances,
        "mean_and_maximum": one.alike.value,
        "mean_and_loss": one.before_loss[0],
        "maximum_and_loss": one.before_loss[1],
    }


def _figure(found: list[Compared]) -> Figure:
    """For each group its returns on the left, and its distances on the right."""
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(one.case.group for one in found))
    figure = Figure(figsize=(9.2, 3.1 * max(1, len(groups)) + 0.4), layout="constrained")
    shades = colours(dict.fromkeys(one.case.algorithm for one in found))
    styles = {_OWN[0]: ("mean", "-"), _OWN[1]: ("maximum", "--")}
    for row, group in enumerate(groups):
        some = [one for one in found if one.case.group == group]
        left, right = (figure.add_subplot(len(groups), 2, 2 * row + side) for side in (1, 2))
        for one in some:
            shade = shades[one.case.algorithm]
            _draw(left, one, _RETURNS, shade)
            _draw(right, one, styles, shade)
        floor = min(float(np.median(o.curves["return_mean"].values[:, 0])) for o in some)
        left.set_ylim(bottom=floor)
        left.set_ylabel("mean return")
        right.set_ylabel("distance from the global policy")
        for axes in (left, right):
            axes.set_title(some[0].case.title, size=10, loc="left")
            axes.set_xlabel("round")
            axes.tick_params(length=0)
            axes.legend(fontsize=7)
            round_ticks(axes, 6)
    return figure


def _draw(axes: Axes, one: Compared, styles: dict[str, tuple[str, str]], shade: str) -> None:
    for name, (label, style) in styles.items():
        values = one.curves[name].values
        axes.plot(
            np.arange(1, values.shape[1] + 1),
            iqm(values),
            color=shade,
            ls=style,
            lw=1.3,
            label=f"{one.curves['return_mean'].name}: {label}",
        )
