"""A comparison's directory: ordinary runs side by side, and the plan that says which.

compare.toml                 the plan; a directory that has it is a comparison
ALGORITHM-seedS/             a run for each algorithm and each seed of the plan
ALGORITHM-KEY=VALUE-seedS/   likewise, where settings are varied
REFERENCE-seedS/             and for each reference
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.core.text import described, folder_name, short_digest
from fedkl.io import strict_toml
from fedkl.training.plans import RunsPlan

REFERENCES = ("alone", "centralised")
"""References to compare a federation with: each client alone, and all data in one place."""
_OF_REFERENCE = {
    "alone": {"algorithm.name": "fedavg", "federation.personal": "all"},
    "centralised": {"algorithm.name": "fedavg", "federation.data": "pooled"},
}
"""The settings that a reference is known by; what else it makes of a federation's is its own."""


@dataclass(frozen=True)
class ComparisonPlan(RunsPlan):
    """The plan of a comparison."""

    FILE = "compare.toml"

    preset: str = setting("", "what the runs are made from; an absolute path if it is a file")
    algorithms: tuple[str, ...] = setting((), "the algorithms compared")
    seeds: tuple[int, ...] = setting((), "the seeds each is trained with", low=0)
    jobs: int = setting(1, "how many runs go on at a time", low=1)
    references: tuple[str, ...] = setting((), "references trained beside them")
    vary: tuple[Mapping[str, Any], ...] = ()
    """Settings by dotted name that each algorithm is trained with, one after the other; nothing:
    with those of the preset alone."""
    lacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of these settings those that an algorithm does not have: it is trained once for all their
    values."""
    settings: tuple[str, ...] = setting((), "what all runs share, as --set gave it")
    plugins: tuple[str, ...] = setting((), "files that --plugin gave")
    rounds: int = setting(0, "of each run at least; 0: as many as the preset says", low=0)

    def cells(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """Return what is trained with every seed: an algorithm or a reference, and settings, by the
        name of its runs."""
        found: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for algorithm in (*self.algorithms, *self.references):
            for varied in self.vary or ({},):
                without = self.lacks.get(algorithm, ())
                settings = {key: value for key, value in varied.items() if key not in without}
                if (algorithm, settings) in found.values():
                    continue
                values = described(settings)
                name = folder_name(algorithm, *values)
                if name in found:  # values that differ in what no folder's name can hold
                    name = f"{name}-{short_digest(' '.join(values))}"
                found[name] = (algorithm, settings)
        return found

    def run_paths(self, path: Path) -> list[Path]:
        """Return the run directories, seed by seed, so that an early look compares like with
        like."""
        return [path / name_of(cell, seed) for seed in self.seeds for cell in self.cells()]

    def settings_by_run(self) -> dict[str, dict[str, Any]]:
        """Return what the plan says of each run: algorithm, seed and what is varied."""
        said = {}
        for cell, (algorithm, varied) in self.cells().items():
            own = _OF_REFERENCE[algorithm] if algorithm in self.references else None
            settings = {"algorithm.name": algorithm, **varied} if own is None else own
            shared = {"federation.rounds": self.rounds} if self.rounds else {}
            for seed in self.seeds:
                said[name_of(cell, seed)] = {
                    "preset": self.preset, "seed": seed, **shared, **settings,
                }  # fmt: skip
        return said

    def values(self) -> dict[str, Any]:
        """Return what is written to the file: without what is empty."""
        values = super().values()
        optional = ("vary", "lacks", "references", "settings", "plugins", "rounds")
        return {name: x for name, x in values.items() if x or name not in optional}

    @classmethod
    def parse(cls, values: dict[str, Any], file: str) -> Self:
        vary, lacks = values.pop("vary", []), values.pop("lacks", {})
        if not isinstance(vary, list) or not all(isinstance(settings, dict) for settings in vary):
            raise UserError(f"{file}.vary must be a list of tables, not {vary!r}")
        lists = isinstance(lacks, dict) and all(isinstance(keys, list) for keys in lacks.values())
        if not lists:
            raise UserError(f"{file}.lacks must be a table of lists, not {lacks!r}")
        return dataclasses.replace(super().parse(values, file), vary=tuple(vary), lacks=lacks)

    @classmethod
    def read_names(cls, path: Path) -> Self:
        """Read the lists of algorithms, references, seeds and settings alone, as far as there are
        any; what else the file holds is passed over, so that one made by hand can be read.

        Raises:
            UserError: the file cannot be read, or such a list is wrong.
        """
        values = strict_toml.read(path / cls.FILE)
        named = {n: values.get(n) for n in ("algorithms", "references", "seeds", "vary", "lacks")}
        there = {name: value for name, value in named.items() if isinstance(value, list | dict)}
        return cls.parse(there, str(path / cls.FILE))


def name_of(cell: str, seed: int) -> str:
    """The name of a run's directory."""
    return f"{cell}-seed{seed}"


def runs_in(path: Path) -> list[Path]:
    """Every run that lies in the directory, planned or not, in the order of the names."""
    return sorted(run for run in path.iterdir() if (run / "config.toml").is_file())
