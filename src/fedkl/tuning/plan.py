"""A tuning's directory: ordinary runs side by side, and the plan that says which.

tune.toml          the plan; a directory that has it is a tuning
NUMBER-seedS/      a run for each candidate and each seed of the plan
tuning.json        at the end: all that was tried, and what it came to
best.toml          at the end: a config file with the winner's settings
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from fedkl.errors import UserError
from fedkl.runs import strict_toml, write_atomically
from fedkl.settings import build, setting
from fedkl.tuning.grid import Candidate

_PLAN = "tune.toml"
HALVINGS = 2
"""Where nobody says otherwise, and there are enough rounds and candidates."""


@dataclass(frozen=True)
class Plan:
    """What is tried, and for how long."""

    preset: str = setting("", "what the runs are made from; an absolute path if it is a file")
    algorithm: str = setting("", "the algorithm whose settings are chosen")
    plugins: tuple[str, ...] = setting((), "files that --plugin gave")
    settings: tuple[str, ...] = setting((), "what all candidates share, as --set gave it")
    seeds: tuple[int, ...] = setting((), "the seeds each candidate is trained with", low=0)
    rungs: tuple[int, ...] = setting(
        (), "rounds after which the better half goes on; the last: all", low=1
    )
    evaluated_every: int = setting(1, "evaluation.every of all candidates", low=1)
    jobs: int = setting(1, "how many runs go on at a time", low=1)
    candidates: tuple[Candidate, ...] = ()

    def name_of(self, candidate: int, seed: int) -> str:
        """The name of a run's directory; names sort as numbers do."""
        digits = len(str(len(self.candidates) - 1))
        return f"{candidate:0{digits}d}-seed{seed}"

    @property
    def rounds(self) -> int:
        """How many rounds all runs together take, if none stalls."""
        total, left, before = 0, len(self.candidates), 0
        for rung in self.rungs:
            total += left * (rung - before)
            left, before = half(left), rung
        return total * len(self.seeds)


def half(candidates: int) -> int:
    """How many candidates of a rung go on."""
    return math.ceil(candidates / 2)


def rungs(rounds: int, halvings: int | None, candidates: int, every: int) -> tuple[int, ...]:
    """The rounds after which candidates are judged.

    Args:
        rounds: how far the last ones go.
        halvings: how often the worse half is dropped; None: `HALVINGS`, fewer where the rounds or
            the candidates are too few.
        candidates: how many there are.
        every: rounds between evaluations.

    Raises:
        UserError: that many halvings need more rounds.

    Example:
        >>> rungs(200, None, 8, 1)
        (50, 100, 200)
    """
    if halvings is None:
        halvings = HALVINGS
        while halvings and (rounds >> halvings < every or candidates <= 2 ** (halvings - 1)):
            halvings -= 1
    if halvings and rounds >> halvings < every:
        raise UserError(
            f"{rounds} rounds are too few for {halvings} halvings: candidates would first be "
            f"judged after round {rounds >> halvings}, before anything is evaluated "
            f"(evaluation.every = {every})"
        )
    return tuple(rounds >> left for left in range(halvings, -1, -1))


def is_tuning(path: Path) -> bool:
    """Whether a directory holds a tuning."""
    return (path / _PLAN).is_file()


def write_plan(path: Path, plan: Plan) -> None:
    """Makes a directory a tuning, all at once."""
    write_atomically(path / _PLAN, tomli_w.dumps(dataclasses.asdict(plan)).encode())


def read_plan(path: Path) -> Plan:
    """The plan of a tuning's directory.

    Raises:
        UserError: the file cannot be read, or is not a plan.
    """
    file = path / _PLAN
    values = strict_toml.read(file)
    candidates = values.pop("candidates", None)
    if not isinstance(candidates, list) or not all(isinstance(c, dict) for c in candidates):
        raise UserError(f"{file}.candidates must be a list of tables, not {candidates!r}")
    plan: Plan = build(Plan, values, str(file))
    for name, entries in (
        ("candidates", candidates),
        ("seeds", plan.seeds),
        ("rungs", plan.rungs),
    ):
        if not entries:
            raise UserError(f"{file}.{name} must not be empty")
    return dataclasses.replace(plan, candidates=tuple(candidates))
