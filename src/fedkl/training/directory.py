"""A run's directory: its config, log, checkpoints and tables."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from fedkl.core.errors import StalledError, UserError
from fedkl.io import files, strict_json, strict_toml
from fedkl.io.locks import LOCK, Lock, lock_directory
from fedkl.training.checkpoints import Checkpoints, Saved
from fedkl.training.metrics import MetricsLog

Array = npt.NDArray[Any]


def columns(parameters: Mapping[str, Array]) -> dict[str, Array]:
    """A column for each parameter, or for each entry of one that has several.

    Args:
        parameters: by name, a row for each client.

    Example:
        >>> list(columns({"gravity": np.ones(2), "offset": np.ones((2, 2))}))
        ['gravity', 'offset_0', 'offset_1']
    """
    result: dict[str, Array] = {}
    for name, rows in parameters.items():
        flat = rows.reshape(len(rows), -1)
        names = [name] if rows.ndim == 1 else [f"{name}_{i}" for i in range(flat.shape[1])]
        result |= dict(zip(names, flat.T, strict=True))
    return result


def as_csv(parameters: Mapping[str, Array]) -> str:
    """The table as text; a number is as short as its type can tell it from any other.

    Example:
        >>> as_csv({"gravity": np.float32([9.8, 7])})
        'client,gravity\\n0,9.8\\n1,7.0\\n'
    """
    table = columns(parameters)
    clients = np.arange(len(next(iter(table.values()))))
    texts = [column.astype(str).tolist() for column in (clients, *table.values())]
    rows = map(",".join, zip(*texts, strict=True))
    return "\n".join([",".join(["client", *table]), *rows]) + "\n"


_CONFIG = "config.toml"
_CLIENTS = "clients.csv"
_SUMMARY = "summary.json"
_LARGEST = 2**22
"""Bytes of a summary; more would be no accident."""
START = "start"
"""Holds what a run has taken from another one, if it started from a policy."""
SERVING = "serving.toml"
"""Says how a run is served to clients in a network, and that it is."""


def is_served(run: Path) -> bool:
    """Return True if a run's clients are in a network."""
    return (run / SERVING).exists()


class RunDirectory:
    """One run on disk. Made with `create` or `open`; opening writes nothing.

    Attributes:
        path: the directory, as the user gave it.
        metrics: its metrics log.
        checkpoints: its checkpoints.
        best: those of the best evaluated rounds, the last two (`checkpoint.keep_best`): a run that
            goes back to the checkpoint before the newest has the best one of that time.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self.metrics = MetricsLog(self.path / "metrics.jsonl", self.require_lock)
        self.checkpoints = Checkpoints(self.path / "checkpoints", require=self.require_lock)
        self.best = Checkpoints(self.path / "best", require=self.require_lock)
        self._lock: Lock | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        serve: Callable[[Path], None] | None = None,
    ) -> RunDirectory:
        """Make a run at round 0; otherwise as `creating`."""
        with cls.creating(path, config, serve) as run:
            return run

    @classmethod
    @contextlib.contextmanager
    def creating(
        cls,
        path: Path,
        config: Mapping[str, Any],
        serve: Callable[[Path], None] | None = None,
    ) -> Iterator[RunDirectory]:
        """Make a run at round 0, and hold it inside the block, of which nothing is left if it fails
        before the first round.

        After mending what is wrong, a user begins again under the same name. A run that was
        interrupted, or that found no clients, has not failed: it can be resumed.

        The config is written last, and all at once. So a crash leaves either a run or a directory
        in which a run can be created again.

        Args:
            path: a directory that does not exist or is empty.
            config: what TOML can hold.
            serve: writes what is to be there before the config: how the run is served, and what
                it starts from.

        Raises:
            UserError: something is there already, or it could not be written.
        """
        run = cls(path)
        text = tomli_w.dumps(config)
        run._require_vacant()
        missing = [folder for folder in (run.path, *run.path.parents) if not folder.exists()]
        try:
            with files.explain_os_errors("create", run.path):
                files.make_directory(run.path)
            with run.lock():
                # Again, because another process may have been as far as this one.
                run._require_vacant()
                try:
                    run._write_first(text, serve)
                    yield run
                except StalledError:
                    raise
                except Exception:
                    # While it is held: what is removed must not be what another process trains.
                    if not run.metrics.read():
                        run._empty()
                    raise
        except Exception:
            for folder in missing:
                with contextlib.suppress(OSError):  # another run may be in it by now
                    folder.rmdir()
            raise

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run that exists.

        Raises:
            UserError: the path is not a run directory.
        """
        run = cls(path)
        with files.explain_os_errors("read", run.path):
            if not run.path.exists():
                raise UserError(f"{run.path} does not exist")
            if not (run.path / _CONFIG).is_file():
                if inside := min(run.path.glob(f"*/{_CONFIG}"), default=None):
                    raise UserError(
                        f"{run.path} is not a run, but holds some: say which, such as "
                        f"{inside.parent}"
                    )
                raise UserError(f"{run.path} is not a run directory: it has no {_CONFIG}")
        return run

    def replace_config(self, config: Mapping[str, Any]) -> None:
        """Replace the run's config, all at once; its lock must be held.

        Args:
            config: what TOML can hold.
        """
        self._write(self.path / _CONFIG, tomli_w.dumps(config).encode())

    def config(self) -> dict[str, Any]:
        """The config that the run was created with, or that it was given since.

        Raises:
            UserError: the file cannot be read or is not TOML.
        """
        return strict_toml.read(self.path / _CONFIG)

    def checkpoint(
        self, warn: Callable[[str], None], best: bool, rows: Collection[int] | None = None
    ) -> Saved | None:
        """Return the newest checkpoint, or None if there is none; for readers.

        Args:
            warn: called with one sentence for every damaged file that was met.
            best: of the best evaluated round.
            rows: the numbers of the rows that are wanted, as far as they are there; None: all.

        Raises:
            UserError: it cannot be used, or no best one was kept.
        """
        if not best:
            return self.checkpoints.peek(warn, rows)
        if (saved := self.best.peek(warn, rows, self.newest())) is None:
            raise UserError(
                f"{self.path} has kept no best round: that takes checkpoint.keep_best = true, and "
                "a round that was evaluated"
            )
        return saved

    def newest(self) -> int:
        """The round of the newest checkpoint, whole or not; 0 if there is none.

        The run stands there: a process that died between the two may have saved a best round that
        comes after it.
        """
        return max(self.checkpoints.rounds(), default=0)

    def write_clients(self, parameters: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the table of clients' parameters, all at once; nothing if none differ, or if it is
        there.

        Args:
            parameters: by name, a row for each client.
        """
        path = self.path / _CLIENTS
        if parameters and not path.exists():
            self._write(path, as_csv(parameters).encode())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace the summary, all at once.

        Args:
            summary: what `strict_json.encode` accepts.
        """
        self._write(self.path / _SUMMARY, strict_json.encode_sealed(summary))

    def summary(self) -> dict[str, Any] | None:
        """The summary, or None while there is none.

        Raises:
            UserError: the file cannot be read, is not JSON, or does not fit its checksum.
        """
        path = self.path / _SUMMARY
        if (data := files.read_if_there(path, _LARGEST)) is None:
            return None
        try:
            return strict_json.decode_sealed(data, "rounds")
        except ValueError as error:
            raise UserError(
                f"{path} {error}; remove it, and `fedkl resume {shlex.quote(str(self.path))}` "
                "writes it again"
            ) from error

    def ended(self, warn: Callable[[str], None]) -> int:
        """The round at which the run ended, as its summary says; 0 if it did not, or nobody knows.

        Args:
            warn: is notified of a summary that cannot be used.
        """
        try:
            summary = self.summary() or {}
        except UserError as error:
            warn(str(error))
            return 0
        rounds = summary.get("rounds")
        # One that stalled may have logged a round after its last checkpoint, and is to be resumed.
        return rounds if type(rounds) is int and not summary.get("stalled") else 0

    def write_returns(self, round: int, returns: npt.NDArray[Any]) -> Path:
        """Save each client's returns of one round, all at once; a log line cannot hold so many.

        Args:
            round: the number of the round.
            returns: an array of numbers.

        Returns:
            The file.
        """
        if round < 0:
            raise ValueError(f"a round is not negative: {round}")
        buffer = io.BytesIO()
        np.save(buffer, returns, allow_pickle=False)
        path = self._returns(round)
        with files.explain_os_errors("write", path):
            files.refuse_link(path.parent)
            files.make_directory(path.parent)
        self._write(path, buffer.getvalue())
        return path

    def read_returns(self, round: int, sha256: str | None = None) -> npt.NDArray[Any] | None:
        """Read what `write_returns` saved for a round, or None if there is nothing.

        Args:
            round: the number of the round.
            sha256: the checksum of the file, if anybody knows it.

        Raises:
            UserError: the file cannot be read, is not a whole array, or has another checksum.
        """
        path = self._returns(round)
        if (data := files.read_if_there(path)) is None:
            if sha256 is None:
                return None
            raise UserError(f"{path} is missing, and the log names it")
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise UserError(f"{path} is damaged: it does not fit the checksum in the log")
        buffer = io.BytesIO(data)
        try:
            returns = np.load(buffer, allow_pickle=False)
            if not isinstance(returns, np.ndarray) or buffer.tell() != len(data):
                raise ValueError("something else, or more than an array")
        except Exception as error:  # NumPy has many ways to fail on a damaged header.
            raise UserError(f"{path} is damaged: it is not one whole array") from error
        return returns

    @contextlib.contextmanager
    def lock(self) -> Iterator[Lock]:
        """Hold the run for this process; every writer must hold it, readers need not.

        Inside the block nothing is written through this object once the lock is lost. Whoever holds
        it by this very object has it already: one may hold it around all that serves a run, and
        what trains it inside.
        """
        if self._lock is not None:
            yield self._lock
            return
        with lock_directory(self.path) as lock:
            # Here, because a run that is finished saves nothing more, and a writer of many files
            # would be slow if it looked for these at every one.
            kept = (self.checkpoints.directory, self.best.directory, self._returns(0).parent)
            for folder in kept:
                with files.explain_os_errors("clean", folder):
                    files.refuse_link(folder)
                    if folder.is_dir():
                        files.remove_temporaries(folder)
            self._lock = lock
            try:
                yield lock
            finally:
                self._lock = None

    def require_lock(self) -> None:
        """Ensure that a lock that was taken is still held, before something is written.

        Raises:
            UserError: it is not.
        """
        if self._lock is not None:
            self._lock.require()

    def _write_first(self, config: str, serve: Callable[[Path], None] | None) -> None:
        with files.explain_os_errors("create", self.path):
            (self.path / SERVING).unlink(missing_ok=True)
        if serve is not None:
            serve(self.path)
        self._write(self.path / _CONFIG, config.encode())

    def _empty(self) -> None:
        self.require_lock()
        with files.explain_os_errors("clean", self.path):
            for entry in self.path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)

    def _write(self, path: Path, data: bytes) -> None:
        self.require_lock()
        files.write_atomically(path, data)

    def _returns(self, round: int) -> Path:
        return self.path / "returns" / f"{round:06d}.npy"

    def _require_vacant(self) -> None:
        with files.explain_os_errors("create", self.path):
            if not self.path.exists():
                return
            if not self.path.is_dir():
                raise UserError(f"{self.path} is a file; give a directory for the run")
            names = {entry.name for entry in self.path.iterdir()}
        command = f"`fedkl resume {shlex.quote(str(self.path))}`"
        if _CONFIG in names:
            raise UserError(f"{self.path} holds a run already; go on with it by {command}")
        # Without a config these are what a process left that died when it made the run.
        if not all(map(files.is_temporary, names - {LOCK, SERVING, START})):
            raise UserError(
                f"{self.path} is not empty; give a new directory for a new run "
                f"(a run that exists goes on with {command})"
            )
