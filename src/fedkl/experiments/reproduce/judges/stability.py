"""Figs. 6 and 7: who stays stable on Reacher, and what goes before a loss of return."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedkl.experiments.reproduce.experiment import (
    FAILS,
    OPEN,
    Experiment,
    ExperimentResult,
    Runs,
    Verdict,
)
from fedkl.experiments.reproduce.judges.curves import (
    CaseCurves,
    Panel,
    curves_of,
    draw_curves,
    groups_of,
)
from fedkl.experiments.reproduce.results import column
from fedkl.experiments.reproduce.statistics import (
    COLLAPSED,
    collapses,
    correlation,
    lost_share,
    stages,
    together,
    verdict,
    within_stages,
)
from fedkl.experiments.reproduce.text import interval_text, table
from fedkl.report.statistics import (
    FloatArray,
    IntArray,
    difference,
    estimate,
    probability_of_improvement,
    resampled,
)

LETTER, SMALLER = "letter", "smaller"
RIVALS = ("fedavg", "fedprox")
OF_THE_PAPER = ("fedkl", "fedavg", "fedprox", "fmarl")
STABLE = 0.1
"""Who is collapsed in a larger share of rounds is not stable, however others are."""
_AS_GOOD = 0.9
"""A run is as far as another when it has this share of what the other gained."""


def judge_stability(experiment: Experiment, runs: Runs) -> ExperimentResult:
    """Judge returns, collapses, and the distances before them, group by group."""
    groups = {
        name: (title, curves_of(experiment, runs, name))
        for name, title in groups_of(experiment, runs).items()
    }
    c1 = {name: _median_c1(experiment, runs, name) for name in groups}
    rows = [
        {"group": name} | _row(curves) | {"c1": c1[name].get(algorithm)}
        for name, (_, by_algorithm) in groups.items()
        for algorithm, curves in by_algorithm.items()
    ]
    panels = [Panel(title, [*curves.values()]) for title, curves in groups.values()]
    letter = groups.get(LETTER, ("", {}))[1]
    verdicts = [
        _stable(letter),
        _slow(letter, groups.get(SMALLER, ("", {}))[1]),
        _precedes(experiment, runs),
    ]
    text = "\n\n".join(
        _group_text(title, curves, c1[name]) for name, (title, curves) in groups.items()
    )
    return ExperimentResult(
        rows, partial(draw_curves, panels, "mean return"), f"{text}\n", verdicts
    )


def _row(curves: CaseCurves) -> dict[str, Any]:
    fallen = [collapses(v) for v in curves.values]
    return curves.summary() | {
        "collapses": float(np.mean([c.number for c in fallen])),
        "rounds_collapsed": float(np.mean([c.share for c in fallen])),
        "deepest": max(c.depth for c in fallen),
    }


def _median_c1(experiment: Experiment, runs: Runs, group: str) -> dict[str, float]:
    """Return the median of c1 over rounds and seeds, of those algorithms that have one."""
    return {
        algorithm: float(np.nanmedian(curves.values))
        for algorithm, curves in curves_of(experiment, runs, group, "c1").items()
        if not np.isnan(curves.values).all()
    }


def _group_text(title: str, by_algorithm: dict[str, CaseCurves], c1: dict[str, float]) -> str:
    head = [
        f"{title}",
        "seeds",
        "final return",
        "FedKL ends above it, probability",
        "collapses in a run",
        "rounds collapsed",
        "deepest",
        "c1, median",
    ]
    fedkl = by_algorithm.get("fedkl")
    lines = []
    for algorithm, curves in by_algorithm.items():
        row = _row(curves)
        better = ""
        if fedkl is not None and algorithm != "fedkl":
            better = interval_text(probability_of_improvement(fedkl.finals(), curves.finals()), 2)
        lines.append(
            [
                curves.name,
                f"{row['seeds']}",
                interval_text(estimate(curves.finals())),
                better,
                f"{row['collapses']:.1f}",
                f"{100 * row['rounds_collapsed']:.0f} %",
                f"{row['deepest']:.2g}",
                f"{c1[algorithm]:.2g}" if algorithm in c1 else "",
            ]
        )
    return table(head, lines)


def _shares(curves: CaseCurves) -> FloatArray:
    return np.array([collapses(values).share for values in curves.values])


def _stable(letter: dict[str, CaseCurves]) -> Verdict:
    """Judge whether FedKL is collapsed in few rounds, and in fewer than its rivals."""
    if "fedkl" not in letter or not letter.keys() & {*RIVALS}:
        return Verdict("stable", OPEN, "the runs are not there yet.")
    own = _shares(letter["fedkl"])
    gaps = {
        letter[name].name: difference(_shares(letter[name]), own)
        for name in RIVALS
        if name in letter
    }
    said = ", ".join(
        f"{name} {100 * _shares(letter[key]).mean():.0f} %"
        for key, name in ((key, letter[key].name) for key in letter)
    )
    more = "; ".join(f"{name} less FedKL {interval_text(gap, 2)}" for name, gap in gaps.items())
    few = verdict(difference(np.full(len(own), STABLE), own))
    fewer = together([verdict(gap) for gap in gaps.values()])
    both = OPEN if fewer == OPEN else together([few, fewer])
    return Verdict(
        "stable",
        FAILS if FAILS in (few, fewer) else both,
        f"collapsed (more than {COLLAPSED:.0%} of what was gained is lost) in a share of rounds: "
        f"{said} (interquartile means: {more}); stable is at most {STABLE:.0%}.",
    )


def _slow(letter: dict[str, CaseCurves], smaller: dict[str, CaseCurves]) -> Verdict:
    """Judge whether a smaller step is stable, by the same bar as FedKL, and late.

    The bar was added when the first runs were in: before, it was enough that a smaller step
    collapsed in fewer rounds than the larger one.
    """
    both = [name for name in RIVALS if name in letter and name in smaller]
    if not both or "fedkl" not in letter:
        return Verdict("slow", OPEN, "the runs are not there yet.")
    parts, said = [], []
    target = _target(letter["fedkl"])
    for name in both:
        own = _shares(smaller[name])
        few = verdict(difference(np.full(len(own), STABLE), own))
        calmer = difference(_shares(letter[name]), own)
        late = difference(smaller[name].rounds_to(target), letter["fedkl"].rounds_to(target))
        parts += [few, verdict(calmer), verdict(late)]
        said.append(
            f"{letter[name].name} is collapsed in {100 * own.mean():.0f} % of "
            f"rounds instead of {100 * _shares(letter[name]).mean():.0f} %, and needs "
            f"{interval_text(late, 2)} rounds more than FedKL to {target:.3g}"
        )
    text = f"{'; '.join(said)}; stable is at most {STABLE:.0%}."
    return Verdict("slow", together(parts), text)


def _target(curves: CaseCurves) -> float:
    """A return that a case has when nine tenths of what it gains is gained."""
    first, best = curves.values[:, 0].mean(), curves.values.max(axis=1).mean()
    return float(first + _AS_GOOD * (best - first))


def _precedes(experiment: Experiment, runs: Runs) -> Verdict:
    """Judge whether distance is larger in rounds that lose return, among those of a run's stage."""
    run, rounds, distance, loss, falls = [], [], [], [], []
    for case in experiment.cases:
        if case.group != LETTER or case.algorithm not in OF_THE_PAPER:
            continue
        for seed, rows in runs.get(case.name, {}).items():
            values = column(rows, "return_mean")
            distances = column(rows, "distance_global")
            lost = lost_share(np.where(np.isnan(values), -np.inf, values))
            for t in range(1, len(rows)):
                known = np.isfinite([values[t - 1], values[t], distances[t]]).all()
                if known:
                    run.append((case.name, seed))
                    rounds.append(t + 1)
                    distance.append(distances[t])
                    loss.append(values[t - 1] - values[t])
                    falls.append(lost[t] > COLLAPSED >= lost[t - 1])
    if len(run) < 2:
        return Verdict("precedes", OPEN, "the runs are not there yet.")
    stage = stages(run, rounds, first=2)
    x, y = (within_stages(np.array(v), stage) for v in (distance, loss))
    found = resampled(partial(_correlation_of, x, y), stage)
    fallen = np.array(falls)
    said = f"rank correlation of distance and loss of return {interval_text(found, 2)}"
    if fallen.any() and not fallen.all():
        far = np.array(distance)
        above = np.mean(far[fallen][:, None] > far[~fallen][None, :])
        said += (
            f"; in the {int(fallen.sum())} rounds that begin a collapse the distance is "
            f"{np.median(far[fallen]):.2g} (median), else {np.median(far[~fallen]):.2g}, and "
            f"larger in {100 * above:.0f} % of pairs"
        )
    return Verdict("precedes", verdict(found), f"{said}.")


def _correlation_of(x: FloatArray, y: FloatArray, rows: IntArray) -> float:
    return correlation(x[rows], y[rows])
