"""Tuning: successive halving over a grid, its directory, and what it leaves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Protocol, Self

import tomli_w

from fedkl.config.config import Config, put
from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.core.text import counted
from fedkl.experiments import workers
from fedkl.experiments.additions import settings_given
from fedkl.experiments.grid import Candidate
from fedkl.io import strict_json
from fedkl.io.files import write_atomically
from fedkl.io.locks import lock_directory
from fedkl.training.metrics import MetricsLog
from fedkl.training.plans import RunsPlan

HALVINGS = 2
"""The default, if there are enough rounds and candidates."""


@dataclass(frozen=True)
class TuningPlan(RunsPlan):
    """The plan of a tuning."""

    FILE = "tune.toml"

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
    digits: int = setting(0, "of numbers in names; 0: as many as the largest needs", low=0)

    def name_of(self, candidate: int, seed: int) -> str:
        """The name of a run's directory; names sort as numbers do, but for those that were added
        and need more digits."""
        digits = self.digits or len(str(len(self.candidates) - 1))
        return f"{candidate:0{digits}d}-seed{seed}"

    def run_paths(self, path: Path) -> list[Path]:
        """Return the run directories, candidate by candidate."""
        numbers = range(len(self.candidates))
        return [path / self.name_of(number, seed) for number in numbers for seed in self.seeds]

    def settings_by_run(self) -> dict[str, dict[str, Any]]:
        """Return what the plan says of each run: all but what the preset does."""
        shared = {
            "preset": self.preset,
            "algorithm.name": self.algorithm,
            "plugins": self.plugins,
            **settings_given(self.settings),
            "evaluation.every": self.evaluated_every,
            "federation.rounds": self.rungs[-1],
        }
        return {
            self.name_of(number, seed): {**shared, "seed": seed, **candidate}
            for number, candidate in enumerate(self.candidates)
            for seed in self.seeds
        }

    def results(self, path: Path) -> dict[str, bytes] | None:
        """Return tuning.json and best.toml; None while runs have rounds left."""
        rungs: list[Rung] = []
        while len(rungs) < len(self.rungs):
            runs, until = _next_runs(path, self, rungs)
            if not all(workers.is_there(run, until) for run in runs):
                return None
            rungs.append(_judge(path, self, rungs))
        everything = tried(path, self, rungs)
        files = {TRIED: tried_file(self, rungs, everything)}
        if (winner := winner_of(self, rungs, everything)) is not None:
            files[BEST] = best_file(self, self.algorithm, winner.settings)
        return files

    def values(self) -> dict[str, Any]:
        """Return what is written to the file: without what was not asked for."""
        return {name: x for name, x in super().values().items() if x or name != "digits"}

    @classmethod
    def parse(cls, values: dict[str, Any], file: str) -> Self:
        candidates = values.pop("candidates", None)
        if not isinstance(candidates, list) or not all(isinstance(c, dict) for c in candidates):
            raise UserError(f"{file}.candidates must be a list of tables, not {candidates!r}")
        plan = dataclasses.replace(super().parse(values, file), candidates=tuple(candidates))
        for name in ("candidates", "seeds", "rungs"):
            if not getattr(plan, name):
                raise UserError(f"{file}.{name} must not be empty")
        return plan

    @property
    def rounds(self) -> int:
        """The number of rounds of all runs together, if none stalls."""
        total, left, before = 0, len(self.candidates), 0
        for rung in self.rungs:
            total += left * (rung - before)
            left, before = half(left), rung
        return total * len(self.seeds)


def half(candidates: int) -> int:
    """Return the number of a rung's candidates that stay."""
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
            f"{counted(rounds, 'round')} {'is' if rounds == 1 else 'are'} too few for "
            f"{counted(halvings, 'halving')}: candidates would first be "
            f"judged after round {rounds >> halvings}, before anything is evaluated "
            f"(evaluation.every = {every})"
        )
    return tuple(rounds >> left for left in range(halvings, -1, -1))


_LAST = 3
"""Evaluations that a score is the mean of: one alone is noisy."""


class Rung(NamedTuple):
    """The candidates that reached a round."""

    round: int
    scores: dict[int, tuple[float, ...]]
    """Of each candidate, by its number: for each seed; minus infinity where there is none."""


def create(path: Path, plan: TuningPlan, configure: Callable[[Candidate, int], Config]) -> None:
    """Make the tuning's directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is tried.
        configure: the config of a candidate and a seed.

    Raises:
        UserError: a config is wrong (nothing is written then), or the directory exists.
    """
    configs = {
        plan.name_of(number, seed): configure(candidate, seed).mapping()
        for number, candidate in enumerate(plan.candidates)
        for seed in plan.seeds
    }
    workers.create(path, plan, configs)


def run_remaining(path: Path, plan: TuningPlan, train: workers.Trainer) -> list[Rung]:
    """Train the remaining rounds of a tuning's runs, rung by rung.

    Args:
        path: the tuning's directory.
        plan: its plan.
        train: trains them, `plan.jobs` at a time where they are processes here.

    Returns:
        Every rung, the last one with those that reached the end.

    Raises:
        UserError: a run could not be trained as far as it should; the others of its rung were.
    """
    result: list[Rung] = []
    with lock_directory(path):
        while len(result) < len(plan.rungs):
            runs, until = _next_runs(path, plan, result)
            train(runs, plan.jobs, until)
            result.append(_judge(path, plan, result))
    return result


def _left(plan: TuningPlan, rungs: Sequence[Rung]) -> list[int]:
    """The candidates that are left after some rungs."""
    if not rungs:
        return [*range(len(plan.candidates))]
    return sorted(best(rungs[-1])[: half(len(rungs[-1].scores))])


def _next_runs(
    path: Path, plan: TuningPlan, rungs: Sequence[Rung]
) -> tuple[list[Path], int | None]:
    """The runs to train after some rungs, and until when; None: to their end."""
    left, round = _left(plan, rungs), plan.rungs[len(rungs)]
    # Seed by seed, as in a comparison.
    runs = [path / plan.name_of(number, seed) for seed in plan.seeds for number in left]
    return runs, None if round == plan.rungs[-1] else round


def _judge(path: Path, plan: TuningPlan, rungs: Sequence[Rung]) -> Rung:
    """The rung after some others, once its runs have come to it."""
    round = plan.rungs[len(rungs)]
    scores = {number: _scores(path, plan, number, round) for number in _left(plan, rungs)}
    return Rung(round, scores)


def best(rung: Rung) -> list[int]:
    """The candidates of a rung, the best first; of equals the earlier."""
    return sorted(rung.scores, key=lambda number: (-fmean(rung.scores[number]), number))


def score(records: Sequence[Mapping[str, Any]], until: int, plan: TuningPlan) -> float:
    """Return a run's score up to a round: the mean of its last three evaluations.

    A return that is not a number counts as minus infinity, as does none at all.
    """
    last = plan.rungs[-1]
    returns = [
        -math.inf if record["return_mean"] is None else float(record["return_mean"])
        for record in records
        if record["round"] <= until
        and (record["round"] % plan.evaluated_every == 0 or record["round"] == last)
    ]
    return fmean(returns[-_LAST:]) if returns else -math.inf


def records_of(path: Path, plan: TuningPlan, candidate: int) -> list[list[dict[str, Any]]]:
    """A candidate's logs, one for each seed."""
    names = [plan.name_of(candidate, seed) for seed in plan.seeds]
    return [MetricsLog(path / name / "metrics.jsonl").read() for name in names]


def _scores(path: Path, plan: TuningPlan, candidate: int, until: int) -> tuple[float, ...]:
    return tuple(score(records, until, plan) for records in records_of(path, plan, candidate))


TRIED = "tuning.json"
BEST = "best.toml"


class Tried(NamedTuple):
    """A candidate and its result."""

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


def tried(path: Path, plan: TuningPlan, rungs: Sequence[Rung]) -> list[Tried]:
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


def winner_of(
    plan: TuningPlan, rungs: Sequence[Rung], all_of_them: Sequence[Tried]
) -> Tried | None:
    """The best candidate that reached the end; None if none of those has a score."""
    winner = all_of_them[best(rungs[-1])[0]]
    return winner if math.isfinite(winner.means[plan.rungs[-1]]) else None


def tried_file(plan: TuningPlan, rungs: Sequence[Rung], all_of_them: Sequence[Tried]) -> bytes:
    """The contents of tuning.json."""
    winner = winner_of(plan, rungs, all_of_them)
    everything = {
        "preset": plan.preset,
        "algorithm": plan.algorithm,
        "settings": plan.settings,
        "plugins": plan.plugins,
        "seeds": plan.seeds,
        "rungs": plan.rungs,
        "env_steps": sum(sum(one.env_steps) for one in all_of_them),
        "best": None if winner is None else winner.number,
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
    return strict_json.encode(everything, indent=2) + b"\n"


def write_tried(
    path: Path, plan: TuningPlan, rungs: Sequence[Rung], all_of_them: Sequence[Tried]
) -> Tried:
    """Write tuning.json, and return the winner.

    Raises:
        UserError: there is none, because no candidate that reached the end has a score.
    """
    write_atomically(path / TRIED, tried_file(plan, rungs, all_of_them))
    if (winner := winner_of(plan, rungs, all_of_them)) is None:
        raise UserError(f"no candidate's returns are finite to the end; see {path / TRIED}")
    return winner


class SettingsOrigin(Protocol):
    """The origin of chosen settings."""

    @property
    def preset(self) -> str: ...
    @property
    def plugins(self) -> tuple[str, ...]: ...
    @property
    def settings(self) -> tuple[str, ...]: ...
    @property
    def seeds(self) -> tuple[int, ...]: ...


def best_file(origin: SettingsOrigin, algorithm: str, settings: Candidate) -> bytes:
    """The contents of best.toml: what was chosen, and what it was chosen with.

    The number of rounds is not in it: a tuning may be shorter than what it is for.

    Args:
        origin: what the settings were chosen from.
        algorithm: whose they are.
        settings: what was chosen.
    """
    content: dict[str, Any] = {"extends": [origin.preset]}
    if origin.plugins:
        content["plugins"] = origin.plugins
    content["tuned_on"] = origin.seeds
    own: dict[str, Any] = {}
    for key, value in (settings_given(origin.settings) | settings).items():
        # What other algorithms have as well holds for all, but for what was chosen for this one.
        chosen = key in settings or key.startswith("algorithm.")
        put(own if chosen else content, key, value)
    content["per_algorithm"] = {algorithm: own}
    return tomli_w.dumps(content).encode()


def write_best(path: Path, origin: SettingsOrigin, algorithm: str, settings: Candidate) -> Path:
    """Write best.toml into a directory; the arguments are those of `best_file`."""
    write_atomically(path / BEST, best_file(origin, algorithm, settings))
    return path / BEST
