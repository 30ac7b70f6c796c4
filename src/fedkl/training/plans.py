"""The plan of a directory that holds several runs: a TOML file there says which.

compare, tune, tune-d-global and reproduce each have one; `fedkl resume` knows a directory by it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
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


@dataclasses.dataclass(frozen=True)
class RunsPlan(ABC):
    """A plan, whose fields are the keys of its file."""

    FILE: ClassVar[str]
    """Its name in the directory; one of `PLANS`."""

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
