"""Chains of checkpoint files, of which each holds only what changed since the one before.

Saving few changed rows must not cost what saving all of them does, and loading must not mean
reading a file for every round there ever was. So the files of a chain at least halve in size from
one to the next: a new file takes over the rows of all files at the end of the chain that are less
than twice its size, and stands in their place. A row that changed once is thus written again only
when the file it is in has grown by half, and n rows are at most about log2 n files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError

from fedkl.core.errors import UserError
from fedkl.io import files


class Link(NamedTuple):
    """One file of a chain.

    Attributes:
        file: where it is.
        size: its rows, and one more for the named arrays, so that no file is free.
        numbers: of its rows; empty for the first of a chain, which has all of them.
    """

    file: File
    size: int
    numbers: frozenset[int]


@dataclasses.dataclass(slots=True)
class FileChain:
    """A file with all rows, and those that build on it, the newest last.

    Attributes:
        links: its files; none for a chain that is yet to begin.
        changed: the rows that changed since its newest file; None if that is not known.
    """

    links: list[Link] = dataclasses.field(default_factory=list)
    changed: set[int] | None = dataclasses.field(default_factory=set)

    def note(self, changed: frozenset[int] | None) -> None:
        """Note rows that changed; None says that any may have."""
        if changed is None:
            self.changed = None
        elif self.changed is not None:
            self.changed |= changed

    def plan(self) -> tuple[frozenset[int], list[Link]]:
        """Return what the next file should hold, and the files that it should build on.

        Returns:
            The numbers of its rows and the links that stay. If none stays, the file should hold
            all rows there are.
        """
        if self.changed is None:
            return frozenset(), []
        numbers, below = set(self.changed), list(self.links)
        while below and below[-1].size < 2 * (len(numbers) + 1):
            numbers |= below.pop().numbers
        return frozenset(numbers), below


Row = Mapping[str, npt.NDArray[Any]]
Rows = Mapping[int, Row]
Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]

# What every safetensors reader for NumPy brings back as it was; it would write some others, too.
_DTYPES = {np.dtype(kind) for kind in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")} | {
    np.dtype(kind) for kind in ("f2", "f4", "f8")
}
_NAME = re.compile(r"(?P<round>\d{6,15})\.(?P<sha256>[0-9a-f]{64})\.safetensors")
_ROWS = "rows"
_BUILDS_ON = "builds_on"
_ROUND = "round"
_DAMAGE = {
    errno.EIO: "the disk failed to read it",
    errno.EISDIR: "it is a directory",
    errno.ELOOP: "it is a link that leads nowhere",
}
_HEADER = 2**27
"""Bytes of a header that are read at the most; safetensors itself allows fewer."""


class File(NamedTuple):
    """A checkpoint file's path, and what its name says. Files sort by round."""

    round: int
    sha256: str
    path: Path


class Contents(NamedTuple):
    """The contents of a file.

    Attributes:
        arrays: the named arrays; the caller's own memory.
        numbers: of the rows in this file.
        stacked: name to what these rows have under it, read-only.
        builds_on: the name of the file that has the other rows, if there are others.
        origin: what else its metadata says.
    """

    arrays: dict[str, npt.NDArray[Any]]
    numbers: list[int]
    stacked: dict[str, npt.NDArray[Any]]
    builds_on: str | None
    origin: dict[str, str]

    def row(self, position: int) -> dict[str, npt.NDArray[Any]]:
        """A copy of one row, by its position in the file."""
        return {name: np.array(stack[position]) for name, stack in self.stacked.items()}


class FileGoneError(Exception):
    """A run that is being trained has removed the file, because it has newer ones."""


class DamagedError(Exception):
    """The reason why a file cannot be used, in a few words."""


def find(directory: Path) -> list[File]:
    """Every checkpoint file in a folder, the newest first."""
    with files.explain_os_errors("read", directory):
        if not directory.exists():
            return []
        found = [named(directory, path.name) for path in directory.iterdir()]
    return sorted((file for file in found if file is not None), reverse=True)


def named(directory: Path, name: str) -> File | None:
    """The file of that name, there or not, or None if it is no name of a checkpoint file."""
    match = _NAME.fullmatch(name)
    return File(int(match["round"]), match["sha256"], directory / name) if match else None


def layout_of(row: Row) -> Layout:
    """The names, dtypes and shapes of a row.

    Raises:
        TypeError: a checkpoint cannot hold one of the arrays.
    """
    arrays = {name: _storable(f"{_ROWS}.{name}", row[name]) for name in row}
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


def stacked(rows: Rows, numbers: Collection[int], layout: Layout) -> dict[str, npt.NDArray[Any]]:
    """Return rows as a file holds them: their numbers, and each of their arrays stacked.

    Args:
        rows: at least those that `numbers` says.
        numbers: of the rows to write.
        layout: what every row must have.

    Raises:
        ValueError: a row is not like the others.
    """
    if not numbers:
        return {}
    ordered = sorted(numbers)
    result = {
        name: np.empty((len(ordered), *shape), dtype) for name, (dtype, shape) in layout.items()
    }
    for position, number in enumerate(ordered):
        row = rows[number]
        if row.keys() != layout.keys():
            raise ValueError(f"row {number} has {sorted(row)}, other rows have {sorted(layout)}")
        for name, expected in layout.items():
            array = np.asarray(row[name])
            if (array.dtype, array.shape) != expected:
                raise ValueError(
                    f"row {number} has {name!r} as {array.dtype} of shape {array.shape}, "
                    f"other rows as {expected[0]} of shape {expected[1]}"
                )
            result[name][position] = array
    named = {f"{_ROWS}.{name}": stack for name, stack in result.items()}
    return {_ROWS: np.array(ordered, np.int64)} | named


def write(
    directory: Path,
    round: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    rows: Mapping[str, npt.NDArray[Any]],
    builds_on: File | None,
    origin: Mapping[str, str],
) -> File:
    """Write a file durably, all at once.

    Args:
        directory: the folder; made if it is not there.
        round: of the checkpoint.
        arrays: name to array.
        rows: as `stacked` gives them.
        builds_on: the file that has the other rows.
        origin: goes into the metadata.

    Raises:
        UserError: the operating system refused.
        ValueError: a name is taken.
        TypeError: a checkpoint cannot hold one of the arrays.
    """
    for name in arrays:
        if name in ("__metadata__", _ROWS) or name.startswith(f"{_ROWS}."):
            raise ValueError(f"the name {name!r} belongs to the format of checkpoints")
    tensors = {name: _storable(name, arrays[name]) for name in arrays} | dict(rows)
    said = {**origin, _ROUND: str(round)}
    if builds_on:
        said[_BUILDS_ON] = builds_on.path.name
    data = _with_metadata(safetensors.numpy.save(tensors), said)
    sha256 = hashlib.sha256(data).hexdigest()
    path = directory / f"{round:06d}.{sha256}.safetensors"
    with files.explain_os_errors("write", directory):
        files.refuse_link(directory)
        files.make_directory(directory)
    files.write_atomically(path, data)
    return File(round, sha256, path)


def read(file: File) -> Contents:
    """Read a file, and check every byte of it.

    Raises:
        GoneError: it is not there.
        DamagedError: it cannot be used.
        UserError: it may not be read.
    """
    with _reading(file.path):
        data = files.read_bytes(file.path)
    if not data:
        raise DamagedError("it is empty")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise DamagedError("its bytes do not match the checksum in its name")
    try:
        tensors = safetensors.numpy.load(data)
        said = _metadata(data[8 : 8 + _header_length(data)])
    except SafetensorError as error:
        raise DamagedError(f"it is not a safetensors file: {error}") from error
    except Exception as error:  # a dtype that NumPy does not have, a shape that cannot be
        raise DamagedError(f"its arrays cannot be read: {error}") from error
    if (inside := said.pop(_ROUND, None)) not in (None, str(file.round)):
        raise DamagedError(f"it is of round {inside[:20]}, not of the one in its name")
    numbers = tensors.pop(_ROWS, np.empty(0, np.int64))
    prefix = f"{_ROWS}."
    stacked = {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
    if numbers.dtype != np.int64 or numbers.ndim != 1 or (np.diff(numbers, prepend=-1) <= 0).any():
        raise DamagedError("its rows are not numbered in ascending order")
    if any(stack.shape[:1] != numbers.shape for stack in stacked.values()):
        raise DamagedError("its rows do not have the length of their numbers")
    return Contents(
        # Copies, because what safetensors returns are read-only views of the file's bytes.
        {name: array.copy() for name, array in tensors.items()},
        numbers.tolist(),
        {name.removeprefix(prefix): stack for name, stack in stacked.items()},
        said.pop(_BUILDS_ON, None),
        said,
    )


def metadata(file: File) -> dict[str, str]:
    """Read the metadata of a file; its bytes are not checked.

    Raises:
        GoneError: it is not there.
        DamagedError: its header cannot be read.
        UserError: it may not be read.
    """
    with _reading(file.path):
        files.require_ordinary(file.path)
    with _reading(file.path), file.path.open("rb") as stream:
        length = _header_length(stream.read(8))
        # A damaged length must not ask for more memory than there is.
        header = stream.read(min(length, _HEADER))
    try:
        return _metadata(header)
    except (ValueError, RecursionError) as error:
        raise DamagedError("its header cannot be read") from error


def builds_on(file: File) -> str | None:
    """The name of the file that `file` builds on, if it does; its bytes are not checked.

    Raises:
        GoneError: it is not there.
        DamagedError: its header cannot be read.
        UserError: it may not be read.
    """
    return metadata(file).get(_BUILDS_ON)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    with files.explain_os_errors("read", path):
        try:
            yield
        except FileNotFoundError as error:
            if os.path.lexists(path):
                raise DamagedError("it is a link that leads nowhere") from error
            raise FileGoneError from error
        except UserError as error:
            raise DamagedError("it is not an ordinary file") from error
        except OSError as error:
            # A bad sector is damage; a missing permission is for the user to mend, not to skip.
            if error.errno not in _DAMAGE:
                raise
            raise DamagedError(_DAMAGE[error.errno]) from error


def _header_length(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def _metadata(header: bytes) -> dict[str, str]:
    parsed = json.loads(header)
    said = parsed.get("__metadata__") if isinstance(parsed, dict) else None
    if not isinstance(said, dict):
        return {}
    return {name: value for name, value in said.items() if isinstance(value, str)}


def _with_metadata(data: bytes, said: Mapping[str, str]) -> bytes:
    """A safetensors file with metadata in a fixed order.

    safetensors itself writes several entries in an order that is left to chance, and the same state
    should give the same bytes.
    """
    end = 8 + _header_length(data)
    header = {"__metadata__": dict(sorted(said.items()))} | json.loads(data[8:end])
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)  # the arrays behind it stay aligned
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(data)[end:]])


def _storable(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # safetensors copies raw memory, so a transposed or strided view would be saved scrambled.
    # (np.ascontiguousarray would make 0-d arrays 1-d.)
    array = np.asarray(array, order="C")
    if array.dtype not in _DTYPES:
        raise TypeError(f"{name!r} has dtype {array.dtype}, which a checkpoint cannot hold")
    return array
