"""Reads what a run left on disk: its settings, its metrics, and whether it came to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.errors import UserError
from fedkl.report.statistics import FloatArray, IntArray
from fedkl.runs import RunDirectory
from fedkl.runs.comparison import is_comparison, read_plan, runs_in, runs_of


@dataclass(frozen=True)
class ClientReturns:
    """The returns of the clients that were evaluated.

    Attributes:
        clients: their numbers.
        returns: the return of each, in the same order.
    """

    clients: IntArray
    returns: FloatArray


@dataclass(frozen=True)
class LoadedRun:
    """One run as read from its directory.

    Attributes:
        algorithm: the name of the algorithm.
        seed: the seed of the run.
        config: the resolved config, tables as mappings.
        records: one mapping a finished round, in the order of the rounds, at least one.
        summary: the contents of `summary.json`, or None where there is none.
        path: the run directory.
    """

    algorithm: str
    seed: int
    config: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any] | None
    path: Path

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return self.path.resolve().name

    @property
    def planned_rounds(self) -> int | None:
        """How many rounds the config asks for, if it says so."""
        rounds = self.setting("federation", "rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def finished(self) -> bool:
        """True if the run wrote its summary and did all the rounds that its config asks for."""
        enough = self.planned_rounds is None or int(self.rounds[-1]) >= self.planned_rounds
        return self.summary is not None and enough

    @property
    def rounds(self) -> IntArray:
        """The number of each recorded round."""
        return np.array([record["round"] for record in self.records], dtype=np.int64)

    @property
    def rejections(self) -> FloatArray:
        """How many updates were rejected in each recorded round."""
        return np.array([len(r.get("rejected") or ()) for r in self.records], dtype=np.float64)

    @property
    def megabytes(self) -> FloatArray:
        """Megabytes (10^6 bytes) sent and received up to the end of each recorded round."""
        traffic = self.series("bytes_down") + self.series("bytes_up")
        return np.nancumsum(traffic) / 1e6

    @property
    def seconds(self) -> FloatArray:
        """Wall-clock seconds up to the end of each recorded round."""
        return np.nancumsum(self.series("seconds"))

    @property
    def not_finite(self) -> int:
        """In how many rounds an evaluation gave a return that is no finite number."""
        # The log holds null for such a return, as for none; but then it has no clients' returns.
        return sum(
            r.get("return_mean") is None
            and bool(r.get("return_per_client") or r.get("returns_file"))
            for r in self.records
        )

    @property
    def sample_sizes(self) -> set[int]:
        """How many clients were evaluated in the rounds in which not all of them were."""
        return {len(r["evaluated"]) for r in self.records if r.get("evaluated")}

    @property
    def round_notes(self) -> list[str]:
        """Why rounds changed nothing, for each that did not."""
        return [str(r["note"]) for r in self.records if r.get("note")]

    @property
    def coefficients(self) -> set[str]:
        """The names of the coefficients that the clients adapt."""
        return {name for r in self.records for name in r.get("coefficients") or ()}

    def series(self, key: str) -> FloatArray:
        """One value a recorded round; NaN where the record has none, or none that is finite."""
        return _finite([record.get(key) for record in self.records])

    def coefficient(self, name: str) -> FloatArray:
        """The mean over clients of a coefficient; NaN as in `series`."""
        return _finite([(record.get("coefficients") or {}).get(name) for record in self.records])

    def client_returns(self, rounds: Sequence[int] | None = None) -> Iterator[ClientReturns]:
        """What each client achieved, one evaluated round after the other.

        The log of a run with many clients leaves their returns to files, which are read as asked.

        Args:
            rounds: only these; None for all.
        """
        for record in self.records:
            if rounds is not None and record["round"] not in rounds:
                continue
            found = record.get("return_per_client")
            if record.get("returns_file"):
                found = RunDirectory(self.path).read_returns(int(record["round"]))
            returns = np.array([] if found is None else found, dtype=np.float64)
            if returns.size:
                evaluated = record.get("evaluated")
                everybody = np.arange(returns.size)
                clients = everybody if evaluated is None else np.array(evaluated, dtype=np.int64)
                yield ClientReturns(clients, returns)

    def setting(self, table: str, key: str) -> Any:
        """The value of `table.key` in the config, or None."""
        return self.config.get(table, {}).get(key)


def load_runs(directory: Path | str) -> list[LoadedRun]:
    """Loads a run directory, or every run of a comparison directory that finished a round.

    Args:
        directory: holds `config.toml` (a run) or `compare.toml` (a comparison).

    Returns:
        The runs; those of a comparison in the order of its algorithms, then by seed.

    Raises:
        UserError: if there is nothing to report.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UserError(f"there is no directory '{directory}'")
    if is_comparison(directory):
        found = [_load_run(path) for path in runs_in(directory)]
        order = read_plan(directory, names_only=True).algorithms
        runs = [run for run in found if run is not None]
        runs.sort(key=lambda run: (_position(order, run.algorithm), run.algorithm, run.seed))
    elif (directory / "config.toml").is_file():
        run = _load_run(directory)
        runs = [] if run is None else [run]
    else:
        raise UserError(
            f"'{directory}' is neither a run nor a comparison: "
            "it holds no config.toml and no compare.toml"
        )
    if not runs:
        raise UserError(f"no run in '{directory}' has finished a round, so there is no report yet")
    return runs


def without_rounds(directory: Path, runs: Sequence[LoadedRun]) -> list[str]:
    """The names of the runs that a comparison planned or began, but that finished no round.

    Args:
        directory: a run directory or a comparison directory.
        runs: what was loaded from it.
    """
    if not is_comparison(directory):
        return []
    plan = read_plan(directory, names_only=True)
    names = {path.name for path in (*runs_in(directory), *runs_of(directory, plan))}
    return sorted(names - {run.path.name for run in runs})


def _finite(values: Sequence[float | None]) -> FloatArray:
    array = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def _position(order: Sequence[str], algorithm: str) -> int:
    return order.index(algorithm) if algorithm in order else len(order)


def _load_run(path: Path) -> LoadedRun | None:
    run = RunDirectory(path)
    records = run.metrics.read()
    if not records:
        return None
    config = run.config()
    algorithm = config.get("algorithm", {}).get("name")
    if not isinstance(algorithm, str):
        raise UserError(f"'{path / 'config.toml'}' does not name its algorithm")
    return LoadedRun(
        algorithm=algorithm,
        seed=int(config.get("seed", 0)),
        config=config,
        records=tuple(records),
        summary=run.summary(),
        path=path,
    )
