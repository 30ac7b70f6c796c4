"""Checkpoints: named arrays saved whole, checked byte by byte when they are read.

A checkpoint is one plain safetensors file whose name holds its round and the SHA-256 of its bytes,
`000012.<sha256>.safetensors`. So the checksum covers every byte, one rename publishes the contents
and the checksum together, and any safetensors reader opens the file.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError

from fedkl.errors import UserError
from fedkl.runs import files

# What every safetensors reader for NumPy brings back as it was; it would write some others, too.
_DTYPES = {np.dtype(kind) for kind in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")} | {
    np.dtype(kind) for kind in ("f2", "f4", "f8")
}
_NAME = re.compile(r"(?P<round>\d{6,})\.(?P<sha256>[0-9a-f]{64})\.safetensors")


class Checkpoints:
    """The last few checkpoints of a run, in one folder.

    Args:
        directory: the folder; made at the first `save`.
        keep: how many checkpoints stay; with two, one damaged file costs little.
    """

    def __init__(self, directory: Path, keep: int = 2):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.directory = Path(directory)
        self.keep = keep
        self._damaged: set[Path] = set()

    def save(self, round: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Saves a checkpoint durably, then removes what it makes superfluous.

        Saving round r says that the run stands at r: checkpoints of later rounds are of a past
        that was abandoned (because one of them was damaged), and go too.

        Args:
            round: the number of finished rounds.
            arrays: name to array of booleans, integers or floats; dtypes and shapes come back
                exactly.

        Raises:
            UserError: it could not be written; the earlier checkpoints are all still there.
        """
        if round < 0:
            raise ValueError(f"a round is not negative: {round}")
        data = safetensors.numpy.save({name: _storable(name, arrays[name]) for name in arrays})
        name = f"{round:06d}.{hashlib.sha256(data).hexdigest()}.safetensors"
        with files.explain_os_errors("write", self.directory):
            files.make_directory(self.directory)
        files.write_atomically(self.directory / name, data)
        self._damaged.discard(self.directory / name)
        self._clean(round, name)

    def latest(self, warn: Callable[[str], None]) -> tuple[int, dict[str, npt.NDArray[Any]]] | None:
        """The newest checkpoint that is whole.

        Args:
            warn: called with one sentence for every damaged checkpoint that was passed over.

        Returns:
            Its round and its arrays, or None if there is no checkpoint at all.

        Raises:
            UserError: there are checkpoints, but all are damaged; or one may not be read.
        """
        found = self._found()
        damaged: list[str] = []
        for saved in found:
            try:
                arrays = _read(saved)
            except _DamagedError as damage:
                self._damaged.add(saved.path)
                damaged.append(f"checkpoint {saved.path} is damaged ({damage})")
                continue
            except _GoneError:
                return self.latest(warn)
            for sentence in damaged:
                warn(f"{sentence}, so the previous one, of round {saved.round}, is used instead")
            return saved.round, arrays
        if damaged:
            raise UserError(f"no checkpoint in {self.directory} can be used: " + "; ".join(damaged))
        return None

    def rounds(self) -> list[int]:
        """The rounds for which there is a checkpoint, whole or not, in ascending order."""
        return sorted({saved.round for saved in self._found()})

    def _found(self) -> list[_Saved]:
        """Every checkpoint, the newest first."""
        with files.explain_os_errors("read", self.directory):
            if not self.directory.exists():
                return []
            names = [(path, _NAME.fullmatch(path.name)) for path in self.directory.iterdir()]
        found = [_Saved(int(m["round"]), m["sha256"], path) for path, m in names if m]
        return sorted(found, reverse=True)

    def _clean(self, round: int, name: str) -> None:
        others = [saved for saved in self._found() if saved.path.name != name]
        earlier = [s for s in others if s.round < round and s.path not in self._damaged]
        kept = earlier[: self.keep - 1]
        with files.explain_os_errors("clean", self.directory):
            for saved in others:
                if saved not in kept:
                    saved.path.unlink(missing_ok=True)
            files.remove_temporaries(self.directory)


class _Saved(NamedTuple):
    round: int
    sha256: str
    path: Path


class _GoneError(Exception):
    """A run that goes on has removed the checkpoint, because it has newer ones."""


class _DamagedError(Exception):
    """Why a checkpoint cannot be used, in a few words."""


def _storable(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # safetensors copies raw memory, so a transposed or strided view would be saved scrambled.
    # (np.ascontiguousarray would make 0-d arrays 1-d.)
    array = np.asarray(array, order="C")
    if array.dtype not in _DTYPES:
        raise TypeError(f"{name!r} has dtype {array.dtype}, which a checkpoint cannot hold")
    if name == "__metadata__":
        raise ValueError("the name '__metadata__' belongs to the safetensors format")
    return array


def _read(saved: _Saved) -> dict[str, npt.NDArray[Any]]:
    with files.explain_os_errors("read", saved.path):
        try:
            data = saved.path.read_bytes()
        except FileNotFoundError as error:
            raise _GoneError from error
        except OSError as error:
            # A bad sector is damage; a missing permission is for the user to mend, not to skip.
            if error.errno != errno.EIO:
                raise
            raise _DamagedError("the disk failed to read it") from error
    if not data:
        raise _DamagedError("it is empty")
    if hashlib.sha256(data).hexdigest() != saved.sha256:
        raise _DamagedError("its bytes do not match the checksum in its name")
    try:
        arrays = safetensors.numpy.load(data)
    except SafetensorError as error:
        raise _DamagedError(f"it is not a safetensors file: {error}") from error
    # Copies, because what safetensors returns are read-only views of the file's bytes.
    return {name: array.copy() for name, array in arrays.items()}
