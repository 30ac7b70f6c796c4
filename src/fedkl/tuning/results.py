"""What a tuning leaves: tuning.json, all that was tried, and best.toml, what to go on with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Protocol

import tomli_w

from fedkl.errors import UserError
from fedkl.runs import strict_json, write_atomically
from fedkl.tuning.grid import Candidate
from fedkl.tuning.halving import Rung, best, records_of
from fedkl.tuning.plan import Plan

TRIED = "tuning.json"
BEST = "best.toml"


class Tried(NamedTuple):
    """A candidate, and what it came to."""

    number: int
    settings: Candidate
    rungs: dict[int, tuple[float, ...]]
    """The score with each seed after each round that it was judged at."""
    rounds: list[int]
    """Trained with each seed."""
    env_steps: list[int]
    """Spent with each seed."""

    @property
    def means(self) -> dict[int, float]:
        """The mean score over seeds after each round that it was judged at."""
        return {round: fmean(scores) for round, scores in self.rungs.items()}


def tried(path: Path, plan: Plan, rungs: Sequence[Rung]) -> list[Tried]:
    """All candidates, in the order of the grid."""
    result = []
    for number, settings in enumerate(plan.candidates):
        last = [records[-1] for records in records_of(path, plan, number)]
        scores = {rung.round: rung.scores[number] for rung in rungs if number in rung.scores}
        rounds = [record["round"] for record in last]
        result.append(
            Tried(number, settings, scores, rounds, [record["env_steps"] for record in last])
        )
    return result


def write_tried(path: Path, plan: Plan, rungs: Sequence[Rung], all_of_them: list[Tried]) -> Tried:
    """Writes tuning.json, and returns the winner.

    Raises:
        UserError: there is none, because no candidate that came to the end has a score.
    """
    winner = all_of_them[best(rungs[-1])[0]]
    there_is_one = math.isfinite(winner.means[plan.rungs[-1]])
    everything = {
        "preset": plan.preset,
        "algorithm": plan.algorithm,
        "settings": plan.settings,
        "plugins": plan.plugins,
        "seeds": plan.seeds,
        "rungs": plan.rungs,
        "env_steps": sum(sum(one.env_steps) for one in all_of_them),
        "best": winner.number if there_is_one else None,
        "candidates": [
            {
                "number": one.number,
                "settings": one.settings,
                "rungs": [
                    {"round": round, "score": one.means[round], "score_per_seed": scores}
                    for round, scores in one.rungs.items()
                ],
                "dropped": len(one.rungs) < len(rungs),
                "rounds_per_seed": one.rounds,
                "env_steps_per_seed": one.env_steps,
            }
            for one in all_of_them
        ],
    }
    write_atomically(path / TRIED, strict_json.encode(everything, indent=2) + b"\n")
    if not there_is_one:
        raise UserError(f"no candidate's returns are finite to the end; see {path / TRIED}")
    return winner


class Origin(Protocol):
    """What settings were chosen from."""

    @property
    def preset(self) -> str: ...
    @property
    def plugins(self) -> tuple[str, ...]: ...
    @property
    def seeds(self) -> tuple[int, ...]: ...


def write_best(path: Path, origin: Origin, algorithm: str, settings: Candidate) -> Path:
    """Writes best.toml into a directory.

    Args:
        path: the directory.
        origin: what the settings were chosen from.
        algorithm: whose they are.
        settings: what was chosen.
    """
    groups: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        group, name = key.split(".")
        groups.setdefault(group, {})[name] = value
    content: dict[str, Any] = {"extends": [origin.preset]}
    if origin.plugins:
        content["plugins"] = origin.plugins
    content |= {"tuned_on": origin.seeds, "per_algorithm": {algorithm: groups}}
    write_atomically(path / BEST, tomli_w.dumps(content).encode())
    return path / BEST
