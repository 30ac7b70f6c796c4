"""Runs that differ in their seed alone, side by side: which count, and their common rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from fedkl.report.runs import ClientReturns, LoadedRun
from fedkl.report.statistics import FloatArray, IntArray, final_window, iqm

MOST_POINTS = 200  # of a curve in a figure
MOST_DRAWN = 12  # groups in the figures: more cannot be told apart
Series = str | Callable[[LoadedRun], FloatArray]


@dataclass(frozen=True)
class Curves:
    """One quantity of several runs over the rounds in which every one of them has it.

    Attributes:
        rounds: the rounds, shape (rounds,).
        values: one row a run, shape (runs, rounds).
    """

    rounds: IntArray
    values: FloatArray

    def thinned(self) -> Curves:
        """At most `MOST_POINTS` points, each the mean of a few neighbouring rounds.

        A thousand noisy points hide their trend, and a page with twenty such runs is heavy.
        """
        n = self.rounds.size
        starts = np.arange(0, n, max(1, math.ceil(n / MOST_POINTS)))
        sizes = np.diff(starts, append=n)
        if n == starts.size:
            return self
        values = np.add.reduceat(self.values, starts, axis=1) / sizes
        return Curves(np.add.reduceat(self.rounds, starts) // sizes, values)

    @property
    def iqm(self) -> FloatArray:
        """The interquartile mean over the runs, for each round."""
        return iqm(self.values)


@dataclass(frozen=True)
class Group:
    """The runs of one algorithm, with the same settings.

    Attributes:
        label: what it is called (see `LoadedRun.label`).
        counted: the runs that enter the statistics: the finished ones; or, while none has
            finished, all that have been evaluated.
        left_out: the other runs.
    """

    label: str
    counted: tuple[LoadedRun, ...]
    left_out: tuple[LoadedRun, ...]

    @property
    def reference(self) -> str | None:
        """The name of the reference that it is, if it is one (see `LoadedRun.reference`)."""
        return self.counted[0].reference

    @property
    def level(self) -> str:
        """The task that was learnt, if the runs are of several (see `LoadedRun.level`)."""
        return self.counted[0].level

    @property
    def method(self) -> str:
        """Its label without the level."""
        return self.counted[0].method

    @property
    def finished(self) -> bool:
        """True if the statistics are those of finished runs."""
        return all(run.finished for run in self.counted)

    @property
    def evaluated(self) -> bool:
        """True if there is a round in which every counted run was evaluated."""
        return self.curves("return_mean").rounds.size > 0

    @property
    def last_round(self) -> int:
        """The last round that was evaluated in every counted run."""
        return int(self.curves("return_mean").rounds[-1])

    def curves(self, series: Series) -> Curves:
        """Return a quantity of the counted runs over their common rounds.

        Args:
            series: the key of the metrics record, or a function from a run to its values.
        """
        return aligned(self.counted, series)

    def initial(self, series: Series) -> FloatArray | None:
        """Return a quantity of the counted runs before the first round, if all have it."""
        if not isinstance(series, str):
            return None
        found = [(run.initial or {}).get(series) for run in self.counted]
        return None if None in found else np.array(found, dtype=np.float64)

    def finals(self, series: Series = "return_mean") -> FloatArray:
        """Return the mean over the final window, for each counted run."""
        values = self.curves(series).values
        return values[:, -final_window(values.shape[1]) :].mean(axis=1)

    def client_returns(self) -> list[ClientReturns]:
        """Return the mean return of each client over the final window, for each counted run.

        Of a client that was not always evaluated, over the rounds of the window in which it was.
        """
        rounds = self.curves("return_mean").rounds
        window = rounds[-final_window(rounds.size) :].tolist()
        found = [list(run.client_returns(window)) for run in self.counted]
        return [_mean_of_each(evaluations) for evaluations in found if evaluations]


def _mean_of_each(evaluations: Sequence[ClientReturns]) -> ClientReturns:
    every = np.concatenate([evaluation.clients for evaluation in evaluations])
    returns = np.concatenate([evaluation.returns for evaluation in evaluations])
    clients, places = np.unique(every, return_inverse=True)
    means = np.bincount(places, weights=returns) / np.bincount(places)
    return ClientReturns(clients, means)


def grouped(runs: Sequence[LoadedRun]) -> list[Group]:
    """Group the runs by label: one task after the other, else in the order in which labels first
    appear."""
    tasks = list(dict.fromkeys(run.level for run in runs))
    ordered = sorted(runs, key=lambda run: tasks.index(run.level))
    labels = dict.fromkeys(run.label for run in ordered)
    return [_group(label, [run for run in runs if run.label == label]) for label in labels]


def judged(groups: Sequence[Group]) -> list[Group]:
    """Those that are compared as algorithms: all but references, if there are others."""
    return [group for group in groups if group.reference is None] or list(groups)


def levels(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Sort groups by the task that they learnt, in the order in which tasks first appear.

    Returns of different tasks, be they worlds or settings of one, are not comparable.
    """
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.level, []).append(group)
    return found


def worlds(groups: Sequence[Group]) -> list[str]:
    """Return the names of the worlds that the runs are of."""
    runs = [run for group in groups for run in (*group.counted, *group.left_out)]
    # Which environment of Gymnasium or PettingZoo it is says more than that it is one.
    found = [[run.setting("world", key) for key in ("id", "module", "name")] for run in runs]
    return list(dict.fromkeys(str(name) for names in found for name in [*filter(None, names)][:1]))


def drawn(groups: Sequence[Group]) -> list[Group]:
    """Return the groups that figures show: at most `MOST_DRAWN`, those that ended highest, as many
    of each task."""
    evaluated = [group for group in groups if group.evaluated]
    if len(groups) <= MOST_DRAWN or not evaluated:
        return list(groups[:MOST_DRAWN])
    ranked = [
        (place, group)
        for own in levels(evaluated).values()
        for place, group in enumerate(sorted(own, key=lambda group: -float(iqm(group.finals()))))
    ]
    best = [group for _, group in sorted(ranked, key=lambda found: found[0])[:MOST_DRAWN]]
    return [group for group in groups if any(group is other for other in best)]


def _group(label: str, runs: Sequence[LoadedRun]) -> Group:
    evaluated = [run for run in runs if np.isfinite(run.series("return_mean")).any()]
    finished = [run for run in evaluated if run.finished]
    counted = finished or evaluated or list(runs)
    left_out = [run for run in runs if not any(run is other for other in counted)]
    return Group(label, tuple(counted), tuple(left_out))


def aligned(runs: Sequence[LoadedRun], series: Series) -> Curves:
    """Align a quantity of some runs over the rounds in which all have a finite value.

    A round that one run lacks is dropped for all: else the set of seeds would change along the
    curve, and a jump could be a seed that left.
    """
    found = []
    for run in runs:
        values = run.series(series) if isinstance(series, str) else series(run)
        has = np.isfinite(values)
        found.append((run.rounds[has], values[has]))
    rounds = reduce(np.intersect1d, [r for r, _ in found])
    values = np.stack([v[np.isin(r, rounds)] for r, v in found])
    return Curves(rounds, values)
