"""Reads what a run left on disk: its settings, its metrics, and whether it came to its end."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.errors import UserError
from fedkl.report.statistics import FloatArray, IntArray
from fedkl.runs import RunDirectory


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
            r.get("return_mean") is None and bool(r.get("return_per_client")) for r in self.records
        )

    def series(self, key: str) -> FloatArray:
        """One value a recorded round; NaN where the record has none, or none that is finite."""
        values = [record.get(key) for record in self.records]
        array = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        return np.where(np.isfinite(array), array, np.nan)

    def per_client(self) -> dict[int, FloatArray]:
        """The return of every client, for each evaluated round."""
        return {
            int(r["round"]): np.array(r["return_per_client"], dtype=np.float64)
            for r in self.records
            if r.get("return_per_client")
        }

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
    if (directory / "compare.toml").is_file():
        found = [_load_run(path) for path in _run_directories(directory)]
        order = list(_read_plan(directory).get("algorithms", []))
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


def without_rounds(directory: Path | str) -> list[str]:
    """The names of the runs that a comparison planned or began, but that finished no round."""
    directory = Path(directory)
    if not (directory / "compare.toml").is_file():
        return []
    plan = _read_plan(directory)
    names = {path.name for path in _run_directories(directory)}
    seeds = plan.get("seeds")
    if isinstance(seeds, list):
        names |= {f"{a}-seed{seed}" for a in plan.get("algorithms", []) for seed in seeds}
    return sorted(name for name in names if not RunDirectory(directory / name).metrics.read())


def _run_directories(directory: Path) -> list[Path]:
    return sorted(p for p in directory.iterdir() if (p / "config.toml").is_file())


def _position(order: list[str], algorithm: str) -> int:
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


def _read_plan(directory: Path) -> dict[str, Any]:
    path = directory / "compare.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is not valid TOML: {error}") from error
