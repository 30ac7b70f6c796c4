"""A run's directory: its config, its log, its checkpoints, its summary, and its lock.

config.toml      the resolved config; a directory that has it is a run
clients.csv      who differs in what, a line for each client; not there if all are alike
metrics.jsonl    one record for each round
summary.json     what the run came to, written at its end
checkpoints/     the last few states
returns/         each client's returns, one file for each round; only of runs with very many clients
.lock            held by the process that runs it
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from fedkl.errors import UserError
from fedkl.runs import files, strict_json
from fedkl.runs.checkpoints import Checkpoints
from fedkl.runs.clients_table import as_csv
from fedkl.runs.metrics import MetricsLog

_CONFIG = "config.toml"
_CLIENTS = "clients.csv"
_LOCK = ".lock"


@contextlib.contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Holds a directory for this process.

    The kernel frees the lock when the process ends, however it ends. The file stays: removing
    it would let two processes hold locks on two files of the same name.

    Raises:
        UserError: another process (or this one, elsewhere) holds it.
    """
    path = directory / _LOCK
    with files.explain_os_errors("lock", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with files.explain_os_errors("lock", path):
            _acquire(descriptor, directory)
            # Nobody else writes now, so these are of a process that died.
            files.remove_temporaries(directory)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        # A holder that has not yet written its number leaves the file empty or stale.
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        holder = f"process {owner}" if owner.isdigit() else "another process"
        raise UserError(f"{directory} is in use by {holder}") from error
    os.ftruncate(descriptor, 0)
    files.write_all(descriptor, f"{os.getpid()}\n".encode("ascii"))


class RunDirectory:
    """One run on disk. Made with `create` or `open`; opening writes nothing.

    Attributes:
        path: the directory, as the user gave it.
        metrics: its metrics log.
        checkpoints: its checkpoints.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self.metrics = MetricsLog(self.path / "metrics.jsonl")
        self.checkpoints = Checkpoints(self.path / "checkpoints")

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> RunDirectory:
        """Makes a run at round 0.

        The config is the only thing written, and all at once. So a crash leaves either a run or a
        directory in which a run can be created again.

        Args:
            path: a directory that does not exist or is empty.
            config: what TOML can hold.

        Raises:
            UserError: something is there already, or it could not be written.
        """
        run = cls(path)
        text = tomli_w.dumps(config)
        run._require_vacant()
        with files.explain_os_errors("create", run.path):
            files.make_directory(run.path)
        with run.lock():
            # Again, because another process may have been as far as this one.
            run._require_vacant()
            files.write_atomically(run.path / _CONFIG, text.encode())
        return run

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
                raise UserError(f"{run.path} is not a run directory: it has no {_CONFIG}")
        return run

    def config(self) -> dict[str, Any]:
        """The config that the run was created with.

        Raises:
            UserError: the file cannot be read or is not TOML.
        """
        path = self.path / _CONFIG
        with files.explain_os_errors("read", path):
            data = path.read_bytes()
        try:
            return tomllib.loads(data.decode("utf-8"))
        except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both of this kind.
            raise UserError(f"{path} is not valid TOML: {error}") from error

    def write_clients(self, words: Mapping[str, npt.NDArray[Any]]) -> None:
        """Writes who differs in what, all at once; nothing if nobody does, or if it is there.

        Args:
            words: by word, a row for each client.
        """
        path = self.path / _CLIENTS
        if words and not path.exists():
            files.write_atomically(path, as_csv(words).encode())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replaces the summary, all at once.

        Args:
            summary: what `strict_json.encode` accepts.
        """
        data = strict_json.encode(summary, indent=2) + b"\n"
        files.write_atomically(self.path / "summary.json", data)

    def summary(self) -> dict[str, Any] | None:
        """The summary, or None while there is none.

        Raises:
            UserError: the file cannot be read or is not JSON.
        """
        path = self.path / "summary.json"
        with files.explain_os_errors("read", path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            return strict_json.decode(data)
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON: {error}") from error

    def write_returns(self, round: int, returns: npt.NDArray[Any]) -> Path:
        """Saves each client's returns of one round, all at once; a log line cannot hold so many.

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
            files.make_directory(path.parent)
        files.write_atomically(path, buffer.getvalue())
        return path

    def read_returns(self, round: int) -> npt.NDArray[Any] | None:
        """What `write_returns` saved for a round, or None if there is nothing.

        Raises:
            UserError: the file cannot be read or is not a whole array.
        """
        path = self._returns(round)
        with files.explain_os_errors("read", path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        buffer = io.BytesIO(data)
        try:
            returns = np.load(buffer, allow_pickle=False)
            if not isinstance(returns, np.ndarray) or buffer.tell() != len(data):
                raise ValueError("something else, or more than an array")
        except Exception as error:  # NumPy has many ways to fail on a damaged header.
            raise UserError(f"{path} is damaged: it is not one whole array") from error
        return returns

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the run for this process; every writer must hold it, readers need not."""
        with lock_directory(self.path):
            # A writer of many files would be slow if it looked for these at every one.
            if (folder := self._returns(0).parent).is_dir():
                with files.explain_os_errors("clean", folder):
                    files.remove_temporaries(folder)
            yield

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
        if any(name != _LOCK and not files.is_temporary(name) for name in names):
            raise UserError(
                f"{self.path} is not empty; give a new directory for a new run "
                f"(a run that exists goes on with {command})"
            )
