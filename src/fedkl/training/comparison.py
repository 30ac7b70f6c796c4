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
from typing import Any

import tomli_w

from fedkl.core.errors import UserError
from fedkl.core.settings import build, setting
from fedkl.core.text import described, folder_name
from fedkl.io import files, strict_toml

REFERENCES = ("alone", "centralised")
"""What a federation may be compared with: each client alone, and all data in one place."""
_PLAN = "compare.toml"


@dataclass(frozen=True)
class Plan:
    """The plan of a comparison."""

    preset: str = setting("", "what the runs are made from")
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
                name = folder_name(algorithm, *described(settings))
                if name in found:  # values that differ in what no folder's name can hold
                    name = f"{name}-{len(found)}"
                found[name] = (algorithm, settings)
        return found


def is_comparison(path: Path) -> bool:
    """Return True if a directory holds a comparison."""
    return (path / _PLAN).is_file()


def write_plan(path: Path, plan: Plan) -> None:
    """Make a directory a comparison, all at once."""
    values = dataclasses.asdict(plan)
    for name in ("vary", "lacks", "references"):
        if not values[name]:
            del values[name]
    files.write_atomically(path / _PLAN, tomli_w.dumps(values).encode())


def read_plan(path: Path, names_only: bool = False) -> Plan:
    """The plan of a comparison's directory.

    Args:
        path: the directory.
        names_only: True for the lists of algorithms, references, seeds and settings alone, as far
            as there are any; whatever else the file holds is passed over, so that one made by hand
            can be read.

    Raises:
        UserError: the file cannot be read, or is not a plan.
    """
    file = path / _PLAN
    values = strict_toml.read(file)
    if names_only:
        names = ("algorithms", "references", "seeds", "vary", "lacks")
        named = {name: values.get(name) for name in names}
        values = {name: value for name, value in named.items() if isinstance(value, list | dict)}
    vary, lacks = values.pop("vary", []), values.pop("lacks", {})
    if not isinstance(vary, list) or not all(isinstance(settings, dict) for settings in vary):
        raise UserError(f"{file}.vary must be a list of tables, not {vary!r}")
    if not isinstance(lacks, dict) or not all(isinstance(keys, list) for keys in lacks.values()):
        raise UserError(f"{file}.lacks must be a table of lists, not {lacks!r}")
    plan: Plan = build(Plan, values, str(file))
    return dataclasses.replace(plan, vary=tuple(vary), lacks=lacks)


def name_of(cell: str, seed: int) -> str:
    """The name of a run's directory."""
    return f"{cell}-seed{seed}"


def runs_of(path: Path, plan: Plan) -> list[Path]:
    """The run directories, seed by seed, so that an early look compares like with like."""
    return [path / name_of(cell, seed) for seed in plan.seeds for cell in plan.cells()]


def runs_in(path: Path) -> list[Path]:
    """Every run that lies in the directory, planned or not, in the order of the names."""
    return sorted(run for run in path.iterdir() if (run / "config.toml").is_file())
