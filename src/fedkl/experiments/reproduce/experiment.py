"""An experiment: groups of runs, the claims that they test, and its judge.

The experiments themselves are the tables of `experiments.toml`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkl.core.text import described, folder_name
from fedkl.experiments import compare
from fedkl.experiments.reproduce.results import Row
from fedkl.io import strict_toml

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST_SEED = 10
"""Of every group; nothing was ever chosen on this seed or those after it."""
FEWEST_SEEDS = 3
"""Of each case that an experiment needs, before the page says more than "cannot be told"."""
HOLDS, IN_PART = "holds", "holds in part"
FAILS, OPEN = "does not hold", "cannot be told"

Rows = Sequence[Row]
"""Of one run, a row for each round."""
Runs = Mapping[str, Mapping[int, Rows]]
"""By case and seed."""


class Case(NamedTuple):
    """Runs that differ in their seed alone."""

    name: str
    """The names of their directories and tables, before the seed."""
    group: str
    title: str
    """Of its group."""
    preset: str
    algorithm: str
    settings: Mapping[str, Any]
    """Beside those of the preset."""
    grid: Mapping[str, Any]
    """Those of them that the group varies."""
    rounds: int
    seeds: tuple[int, ...]
    experiment: str
    """The experiment that the case is of."""
    tier: int
    """Where all experiments are run, those of the first tier come first."""
    reference: str = ""
    """The reference that it is, if it is no federation: a name in `fedkl.experiments.compare`."""

    @property
    def kind(self) -> str:
        """Its name in its group, beside its grid: the algorithm, or the reference."""
        return self.reference or self.algorithm


class Verdict(NamedTuple):
    """The verdict on a claim of the paper."""

    claim: str
    """Its name in the table."""
    verdict: str
    """One of `HOLDS`, `IN_PART`, `FAILS`, `OPEN`."""
    measured: str
    """The numbers that say so, in a sentence."""


class ExperimentResult(NamedTuple):
    """The findings of an experiment."""

    rows: list[dict[str, Any]]
    """Of a CSV file; all have the same keys."""
    draw: Callable[[], Figure]
    """Draws the figure."""
    text: str
    """The meaning of the numbers, in Markdown."""
    verdicts: list[Verdict]


@dataclass(frozen=True)
class Experiment:
    """A figure or a passage of the paper."""

    name: str
    figure: str
    """The place in the paper."""
    summary: str
    judge: str
    """The name of what judges it, in `fedkl.experiments.reproduce.judges`."""
    claims: Mapping[str, str]
    """The paper's statements, in our words, by name."""
    cases: Sequence[Case]
    differs: str
    """What is not as in the paper, or what the paper leaves open; Markdown."""
    tried: str = ""
    """Attempts to explain a result that differs from the paper's; Markdown."""
    needs: Sequence[str] = ()
    """The groups whose first tier must be there before anything is judged; none: all."""
    quick: Mapping[str, Any] = field(default_factory=dict)

    def enough(self, runs: Runs) -> bool:
        """Return True if it may be judged: all of its first group is there, with some seeds."""
        first = min(case.tier for case in self.cases)
        return all(
            len(runs.get(case.name, {})) >= min(FEWEST_SEEDS, len(case.seeds))
            for case in self.cases
            if case.tier == first and (not self.needs or case.group in self.needs)
        )

    def quickly(self) -> Experiment:
        """The experiment cut down to what minutes allow."""
        groups, algorithms = self.quick.get("groups"), self.quick.get("algorithms")
        cases = [
            case._replace(
                rounds=min(case.rounds, self.quick["rounds"]),
                seeds=case.seeds[: self.quick["seeds"]],
            )
            for case in self.cases
            if (groups is None or case.group in groups)
            and (algorithms is None or case.algorithm in algorithms)
        ]
        return replace(self, cases=cases)


def read_experiments() -> dict[str, Experiment]:
    """The experiments of the table, by name."""
    text = (resources.files("fedkl.experiments.reproduce") / "experiments.toml").read_text(
        encoding="utf-8"
    )
    tables = strict_toml.parse(text)
    own = {name: _cases(name, table) for name, table in tables.items()}
    return {
        name: Experiment(
            name=name,
            figure=table["figure"],
            summary=table["summary"],
            judge=table["judge"],
            claims=table["claims"],
            cases=[*own.get(table.get("uses", ""), ()), *own[name]],
            differs=table["differs"],
            tried=table.get("tried", ""),
            needs=table.get("needs", ()),
            quick=table["quick"],
        )
        for name, table in tables.items()
    }


def _cases(experiment: str, table: Mapping[str, Any]) -> list[Case]:
    return [
        Case(
            name=folder_name(group["name"], reference or algorithm, *described(varied)),
            group=group["name"],
            title=group["title"],
            preset=group["preset"],
            algorithm=algorithm,
            settings=_settings_for(algorithm, group.get("set", {})) | varied,
            grid=varied,
            rounds=group.get("rounds", table["rounds"]),
            seeds=tuple(range(FIRST_SEED, FIRST_SEED + group["seeds"])),
            experiment=experiment,
            tier=group["tier"],
            reference=reference,
        )
        for group in table.get("groups", ())
        for algorithm, reference in (
            *((algorithm, "") for algorithm in group["algorithms"]),
            *((compare.ALGORITHM, name) for name in group.get("references", ())),
        )
        for varied in _combinations(group.get("grid", {}))
    ]


def _settings_for(algorithm: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a group as far as they are for an algorithm.

    Example:
        >>> _settings_for("fedavg", {"learner.guard": True, "fedkl: algorithm.c1": 0.1})
        {'learner.guard': True}
    """
    parted = {key: key.rpartition(": ") for key in given}
    return {
        key: given[whole]
        for whole, (whose, _, key) in parted.items()
        if not whose or whose == algorithm
    }


def _combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; one without any where there is no grid.

    Example:
        >>> _combinations({"a": [1, 2], "b": [3]})
        [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
