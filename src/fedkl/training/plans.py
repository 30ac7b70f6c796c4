"""The plan of a directory that holds several runs: a TOML file there says which.

compare, tune, tune-d-global and reproduce each have one; `fedkl resume` knows a directory by it,
and compares it with the runs (`fedkl.training.binding`).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import tomli_w

from fedkl.core.settings import build
from fedkl.io import strict_toml
from fedkl.io.files import write_atomically

PLANS = {
    "compare.toml": "a comparison",
    "reproduce.toml": "an experiment",
    "tune.toml": "a tuning",
    "tune-d-global.toml": "a measurement of d_global",
}
"""The file of each kind of plan, and what a directory that has it holds."""
ADDING = ".adding"
"""The folder in such a directory with what is being added to it (`fedkl.training.growth`)."""


@dataclasses.dataclass(frozen=True)
class RunsPlan(ABC):
    """A plan, whose fields are the keys of its file."""

    FILE: ClassVar[str]
    """Its name in the directory; one of `PLANS`."""
    OF_TABLE: ClassVar[bool] = False
    """True if its runs are those of a table of ours: they are as long as it says, and the table of
    a newer version may have more, or others."""

    @classmethod
    def is_in(cls, path: Path) -> bool:
        """Return True if a directory has such a plan."""
        return (path / cls.FILE).is_file()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the plan of a directory.

        Raises:
            UserError: the file cannot be read, or is not a plan.
        """
        file = path / cls.FILE
        return cls.parse(strict_toml.read(file), str(file))

    @classmethod
    def parse(cls, values: dict[str, Any], file: str) -> Self:
        """Make a plan of what its file says.

        Raises:
            UserError: it is not a plan.
        """
        plan: Self = build(cls, values, file)
        return plan

    def write(self, path: Path) -> None:
        """Make a directory one of this plan, all at once."""
        write_atomically(path / self.FILE, tomli_w.dumps(self.values()).encode())

    def values(self) -> dict[str, Any]:
        """Return what is written to the file."""
        return dataclasses.asdict(self)

    @abstractmethod
    def run_paths(self, path: Path) -> Sequence[Path]:
        """Return the directories of its runs, in the order in which they are trained."""

    @abstractmethod
    def settings_by_run(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what the plan says of each run, by the name of its directory: settings by dotted
        name."""

    def results(self, path: Path) -> Mapping[str, bytes] | None:
        """Return the files that the runs of a directory come to, by name; None while some have
        rounds left.

        Raises:
            UserError: they come to nothing, or cannot be read.
        """
        return {}
