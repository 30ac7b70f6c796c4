"""Reads what a run left on disk: its settings, its metrics, and whether it ended."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.core.errors import UserError
from fedkl.core.text import printable
from fedkl.report.labels import labels, reference
from fedkl.report.statistics import FloatArray, IntArray
from fedkl.training import checkpoint_files
from fedkl.training.checkpoint_files import DamagedError, FileGoneError
from fedkl.training.comparison import ComparisonPlan, runs_in
from fedkl.training.directory import RunDirectory
from fedkl.training.initial import read_initial
from fedkl.training.metrics import MetricsLog
from fedkl.training.origin import differences, listed, settings_of
from fedkl.training.records import require_sensible, training_seconds, warm_seconds

Warn = Callable[[str], object]
_LARGEST = 1e150
"""Larger numbers count as infinite: their squares are, and so may be sums and the ends of axes."""
_TRAINED = "trained"
"""In place of the records of clients: of how many updates were accepted."""
_UNUSED = {"averaging", "clients", "heterogeneity", "selected"}
"""Of a record: long lists, which a report over many runs cannot keep in memory."""


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
        label: what it is called in tables and figures: the name of the algorithm, and what
            else sets it apart from the runs that it was loaded with.
        seed: the seed of the run.
        config: the resolved config, tables as mappings.
        records: one mapping a finished round, in the order of the rounds, at least one.
        summary: the contents of `summary.json`, or None where there is none.
        path: the run directory.
        initial: the returns of the policy before the first round, where they are known.
        level: the part of the label that says which task was learnt, if the runs that it was loaded
            with are of several (see `labels.Label`).
        method: the label without that.
    """

    label: str
    seed: int
    config: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any] | None
    path: Path
    initial: Mapping[str, Any] | None = None
    level: str = ""
    method: str = ""

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return self.path.resolve().name

    @property
    def reference(self) -> str | None:
        """Its name if it is a reference, which others are compared with and is not judged; else
        None."""
        return reference(self.config)

    @property
    def planned_rounds(self) -> int | None:
        """The number of rounds in the config, if it has one."""
        rounds = self.setting("federation", "rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def finished(self) -> bool:
        """True if the run wrote its summary and did all the rounds that its config asks for."""
        enough = self.planned_rounds is None or int(self.rounds[-1]) >= self.planned_rounds
        return self.summary is not None and enough

    @cached_property
    def rounds(self) -> IntArray:
        """The number of each recorded round."""
        rounds = np.array([record["round"] for record in self.records], dtype=np.int64)
        rounds.flags.writeable = False
        return rounds

    @cached_property
    def _series(self) -> dict[str, FloatArray]:
        """Cache of `series`: figures and tables ask again and again."""
        return {}

    @property
    def rejections(self) -> FloatArray:
        """Rejected updates in each recorded round."""
        return np.array([len(r.get("rejected") or ()) for r in self.records], dtype=np.float64)

    @property
    def megabytes(self) -> FloatArray:
        """Megabytes (10^6 bytes) sent and received up to the end of each recorded round, also to
        measure the level of heterogeneity."""
        traffic = self.series("bytes_down") + self.series("bytes_up")
        return np.nancumsum(traffic + np.nan_to_num(self.series("bytes_measured"))) / 1e6

    @property
    def env_steps(self) -> FloatArray:
        """Environment steps up to the end of each recorded round, also of measurements."""
        return self.series("env_steps") + np.nancumsum(self.series("steps_measured"))

    @property
    def gradient_steps(self) -> FloatArray:
        """The policy's gradient steps on all clients up to the end of each recorded round.

        As many as the settings ask for, of each accepted update; NaN with a learner of a plugin.
        """
        size = [self.setting("learner", key) for key in ("iterations", "epochs", "steps")]
        minibatch = self.setting("learner", "minibatch")
        of_ours = self.setting("learner", "name") in (None, "policy-optimisation")
        if not of_ours or not all(type(n) is int and n > 0 for n in (*size, minibatch)):
            return np.full(self.rounds.size, np.nan)
        iterations, epochs, steps = size
        a_client = iterations * epochs * (steps // min(minibatch, steps))
        return np.nancumsum(self.series(_TRAINED)) * a_client

    @property
    def seconds(self) -> FloatArray:
        """Wall-clock seconds up to the end of each recorded round."""
        return np.nancumsum(self.series("seconds"))

    @property
    def seconds_so_far(self) -> FloatArray:
        """Seconds without compilation up to the end of each recorded round; NaN if not known."""
        seconds = _finite(warm_seconds(self.records))
        return np.where(np.isfinite(seconds).any(), np.nancumsum(seconds), np.nan)

    @property
    def training_seconds(self) -> float | None:
        """Seconds of its rounds without compilation (see `records.training_seconds`)."""
        return training_seconds(self.records)

    @property
    def steps_per_second(self) -> float | None:
        """Environment steps of training in a second of that."""
        steps, seconds = self.series("env_steps")[-1], self.training_seconds
        return float(steps) / seconds if seconds and np.isfinite(steps) else None

    @property
    def not_finite(self) -> int:
        """In how many rounds an evaluation gave a return that is no finite number."""
        # The log holds null for such a return, as for none; but then it has no clients' returns.
        return sum(
            bool(np.isnan(mean))
            and (len(r.get("return_per_client", ())) > 0 or bool(r.get("returns_file")))
            for r, mean in zip(self.records, self.series("return_mean"), strict=True)
        )

    @property
    def sample_sizes(self) -> set[int]:
        """Numbers of clients evaluated in the rounds in which not all of them were."""
        return {len(r["evaluated"]) for r in self.records if r.get("evaluated")}

    @property
    def round_notes(self) -> list[str]:
        """The reason for each round that changed nothing."""
        return [str(r["note"]) for r in self.records if r.get("note")]

    @property
    def coefficients(self) -> set[str]:
        """The names of the coefficients that the clients adapt."""
        return {name for r in self.records for name in r.get("coefficients") or ()}

    def series(self, key: str) -> FloatArray:
        """Return one value a recorded round; NaN where the record has none that is finite."""
        if key not in self._series:
            self._series[key] = _finite([record.get(key) for record in self.records])
            self._series[key].flags.writeable = False
        return self._series[key]

    def coefficient(self, name: str) -> FloatArray:
        """Return the mean over clients of a coefficient; NaN as in `series`."""
        return _finite([(record.get("coefficients") or {}).get(name) for record in self.records])

    def client_returns(self, rounds: Sequence[int] | None = None) -> Iterator[ClientReturns]:
        """Yield each client's returns, one evaluated round after the other.

        The log of a run with many clients leaves their returns to files, which are read as asked.

        Args:
            rounds: only these; None for all.
        """
        asked = self.records
        if rounds is not None:
            wanted = np.isin(self.rounds, list(rounds))
            asked = tuple(self.records[i] for i in np.flatnonzero(wanted))
        for record in asked:
            returns = self._returns(record)
            if returns is None or not returns.size:
                continue
            evaluated = record.get("evaluated", range(returns.size))
            if len(evaluated) != returns.size:
                raise UserError(
                    f"{self.path}: round {record['round']} has {returns.size} returns of "
                    f"{len(evaluated)} evaluated clients"
                )
            yield ClientReturns(np.array(evaluated, dtype=np.int64), returns)

    def _returns(self, record: Mapping[str, Any]) -> FloatArray | None:
        """Return the returns of an evaluated round, from its line of the log or from the file it
        names."""
        if not record.get("returns_file"):
            return record.get("return_per_client")
        round = int(record["round"])
        found = RunDirectory(self.path).read_returns(round, record.get("returns_sha256"))
        if found is None:
            return None
        if found.ndim != 1 or found.dtype.kind not in "fiu":
            raise UserError(f"{self.path}: the file with the returns of round {round} has others")
        return found.astype(np.float64)

    def setting(self, table: str, key: str) -> Any:
        """Return the value of `table.key` in the config, or None."""
        group = self.config.get(table)
        return group.get(key) if isinstance(group, Mapping) else None


def load_runs(*directories: Path | str, warn: Warn = warnings.warn) -> list[LoadedRun]:
    """Load runs, and every run of comparisons, tunings and the like that finished a round.

    Args:
        directories: each holds `config.toml` (a run), or runs.
        warn: is notified of a config that is not what the run was made with.

    Returns:
        The runs, each once; those of a comparison in the order of its plan, then by seed.

    Raises:
        UserError: if there is nothing to report.
    """
    found: dict[Path, LoadedRun] = {}
    for directory in map(Path, directories):
        for run in _loaded(directory, warn):
            found.setdefault(run.path.resolve(), run)
    if not found:
        where = "', '".join(map(str, directories))
        raise UserError(f"no run in '{where}' has finished a round, so there is no report yet")
    names = labels([run.config for run in found.values()])
    return [
        replace(run, label=printable(text), level=printable(level), method=printable(method))
        for run, (text, level, method) in zip(found.values(), names, strict=True)
    ]


def _loaded(directory: Path, warn: Warn) -> list[LoadedRun]:
    if not directory.is_dir():
        raise UserError(f"there is no directory '{directory}'")
    if (directory / "config.toml").is_file():
        run = _load_run(directory, warn)
        return [] if run is None else [run]
    comparison, paths = ComparisonPlan.is_in(directory), runs_in(directory)
    if not paths and not comparison:
        raise UserError(f"'{directory}' is no run, and holds none: there is no config.toml")
    runs = [run for run in (_load_run(path, warn) for path in paths) if run is not None]
    order: list[str] = []
    if comparison:
        plan = ComparisonPlan.read_names(directory)
        order = [*plan.cells(), *plan.algorithms]
    runs.sort(key=lambda run: (_position(order, run), run.label, run.seed))
    return runs


def without_rounds(directories: Sequence[Path], runs: Sequence[LoadedRun]) -> list[str]:
    """Return the names of the runs that were planned or begun, but finished no round.

    Args:
        directories: of runs, comparisons and the like.
        runs: what was loaded from them.
    """
    begun: dict[Path, str] = {}
    for directory in directories:
        if (directory / "config.toml").is_file():
            planned = [directory]
        elif ComparisonPlan.is_in(directory):
            plan = ComparisonPlan.read_names(directory)
            planned = [*runs_in(directory), *plan.run_paths(directory)]
        else:
            planned = runs_in(directory)
        begun |= {path.resolve(): path.name for path in planned}
    loaded = {run.path.resolve() for run in runs}
    return sorted(name for path, name in begun.items() if path not in loaded)


def _finite(values: Sequence[float | None]) -> FloatArray:
    array = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    return np.where(np.abs(array) < _LARGEST, array, np.nan)


def _position(order: Sequence[str], run: LoadedRun) -> int:
    """Return the place of a run in a plan: by its name, or else by its algorithm."""
    cell = run.path.name.removesuffix(f"-seed{run.seed}")
    places = [order.index(name) for name in (cell, run.label) if name in order]
    return places[0] if places else len(order)


def _load_run(path: Path, warn: Warn) -> LoadedRun | None:
    run = RunDirectory(path)
    # Before the log is read: beside a run that is being trained, the log is never behind.
    done, origin = _newest(run)
    heads: list[str] = []
    records = tuple(_records(run.metrics, done, origin.get("log", ""), heads))
    if not records:
        return None
    config, summary = run.config(), run.summary()
    table, seed = config.get("algorithm"), config.get("seed", 0)
    algorithm = table.get("name") if isinstance(table, dict) else None
    if not isinstance(algorithm, str):
        raise UserError(f"'{path / 'config.toml'}' does not name its algorithm")
    if type(seed) is not int:
        raise UserError(f"'{path / 'config.toml'}' has a seed that is no whole number")
    ended = (summary or {}).get("rounds", len(records))
    if type(ended) is not int or not 0 < ended <= len(records):
        raise UserError(
            f"{run.metrics.path} ends after round {len(records)}, and the summary is of round "
            f"{ended!r:.20}; see `fedkl check {shlex.quote(str(path))}`"
        )
    if summary and summary.get("log", heads[ended - 1]) != heads[ended - 1]:
        raise UserError(f"{path / 'summary.json'} is not of the log beside it")
    if not isinstance((summary or {}).get("versions") or {}, dict):
        raise UserError(f"{path / 'summary.json'} has versions that are no table")
    if changes := _changes(config, origin):
        warn(f"{path / 'config.toml'} is not what the run was made with: {listed(changes)}")
    initial = read_initial(run, config)
    return LoadedRun(printable(algorithm), seed, config, records, summary, path, initial)


def _newest(run: RunDirectory) -> tuple[int, dict[str, Any]]:
    """Return the round of the newest checkpoint that has an origin, and that origin."""
    for file in checkpoint_files.find(run.checkpoints.directory):
        try:
            said = checkpoint_files.metadata(file)
            return file.round, {n: json.loads(said[n]) for n in ("config", "rounds", "log")}
        except (DamagedError, FileGoneError, KeyError, ValueError, RecursionError):
            continue  # resuming from it will say so; a report does without
    return 0, {}


def _changes(config: Mapping[str, Any], origin: Mapping[str, Any]) -> list[str]:
    before, rounds = origin.get("config"), origin.get("rounds")
    if not isinstance(before, dict):
        return []
    group = config.get("federation")
    now = group.get("rounds") if isinstance(group, dict) else None
    longer = [] if now == rounds else [f"federation.rounds was {rounds}, is {now}"]
    return differences(before, settings_of(config)) + longer


def _records(
    log: MetricsLog, done: int, head: str, heads: list[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the part of each record that a report needs; the rest is dropped at once.

    Args:
        log: where they are.
        done: the round of a checkpoint.
        head: what the log's checksums had come to then.
        heads: takes what they come to with each record.
    """
    for line in log.lines_of_rounds(done, head):
        heads.append(line.content_digest)
        require_sensible(log, line.record)
        used = ((name, value) for name, value in line.record.items() if name not in _UNUSED)
        record = {name: value for name, value in used if value not in (None, [], {})}
        record[_TRAINED] = len(line.record.get("clients") or ())
        if "return_per_client" in record:
            record["return_per_client"] = np.array(record["return_per_client"], np.float64)
        yield record
