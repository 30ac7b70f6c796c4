"""A comparison's directory: ordinary runs side by side, and the plan that says which.

compare.toml        the plan; a directory that has it is a comparison
ALGORITHM-seedS/    a run for each algorithm and each seed of the plan
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedkl.errors import UserError
from fedkl.runs import files
from fedkl.settings import build, setting

_PLAN = "compare.toml"


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    preset: str = setting("", "what the runs are made from")
    algorithms: tuple[str, ...] = setting((), "the algorithms compared")
    seeds: tuple[int, ...] = setting((), "the seeds each is trained with", low=0)
    jobs: int = setting(1, "how many runs go on at a time", low=1)


def is_comparison(path: Path) -> bool:
    """Whether a directory holds a comparison."""
    return (path / _PLAN).is_file()


def write_plan(path: Path, plan: Plan) -> None:
    """Makes a directory a comparison, all at once."""
    files.write_atomically(path / _PLAN, tomli_w.dumps(dataclasses.asdict(plan)).encode())


def read_plan(path: Path, names_only: bool = False) -> Plan:
    """The plan of a comparison's directory.

    Args:
        path: the directory.
        names_only: True for the lists of algorithms and seeds alone, as far as there are any;
            whatever else the file holds is passed over, so that one made by hand can be read.

    Raises:
        UserError: the file cannot be read, or is not a plan.
    """
    file = path / _PLAN
    values = read_toml(file)
    if names_only:
        lists = {name: values.get(name) for name in ("algorithms", "seeds")}
        values = {name: value for name, value in lists.items() if isinstance(value, list)}
    return build(Plan, values, str(file))


def read_toml(file: Path) -> dict[str, Any]:
    """What a file holds.

    Raises:
        UserError: it cannot be read, or is not TOML.
    """
    with files.explain_os_errors("read", file):
        text = file.read_text(encoding="utf-8", errors="replace")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is not valid TOML: {error}") from error


def name_of(algorithm: str, seed: int) -> str:
    """The name of a run's directory."""
    return f"{algorithm}-seed{seed}"


def runs_of(path: Path, plan: Plan) -> list[Path]:
    """The run directories, seed by seed, so that an early look compares like with like."""
    return [path / name_of(algorithm, s) for s in plan.seeds for algorithm in plan.algorithms]


def runs_in(path: Path) -> list[Path]:
    """Every run that lies in the directory, planned or not, in the order of the names."""
    return sorted(run for run in path.iterdir() if (run / "config.toml").is_file())
