"""Checkpoints: named arrays and numbered rows, checked byte by byte when they are read.

The files are those of `checkpoint_files`. While all rows together are small, a checkpoint is one
file. When they are not, it is a chain of files (see `Chain`), so that a save costs what changed
and not what there is. The chains of consecutive checkpoints have no file in common: they take
turns. So one damaged file costs one checkpoint, however many build on it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.io.locks import unlocked
from fedkl.training import checkpoint_files
from fedkl.training.checkpoint_files import (
    DamagedError,
    File,
    FileChain,
    FileGoneError,
    Layout,
    Link,
    Rows,
)

_NO_ROWS: Rows = MappingProxyType({})
_NO_ORIGIN: Mapping[str, str] = MappingProxyType({})


class Saved(NamedTuple):
    """A checkpoint as it was saved.

    Attributes:
        round: the number of finished rounds.
        arrays: name to array.
        rows: row number to named arrays.
        origin: where it comes from, as names and texts (see `training.origin`).
    """

    round: int
    arrays: dict[str, npt.NDArray[Any]]
    rows: dict[int, dict[str, npt.NDArray[Any]]]
    origin: Mapping[str, str]


def require_finite(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> None:
    """Require that the arrays whose names begin so are finite in float32, as a server's model is.

    A checksum says that a file is as it was written, and not that training wrote it.

    Raises:
        ValueError: one is not; the message names it.
    """
    for name, array in arrays.items():
        if name.startswith(prefix):
            with np.errstate(over="ignore"):
                finite = np.isfinite(np.asarray(array, np.float32)).all()
            if not finite:
                raise ValueError(f"{name} has numbers that are not finite")


class Checkpoints:
    """The last few checkpoints of a run, in one folder.

    Args:
        directory: the folder; made at the first `save`.
        keep: how many checkpoints stay that have no file in common; with two, one damaged file
            costs little.
        small: up to how many bytes all rows together are written anew in every file.
        require: is called before anything is written, and raises if it must not be.
    """

    def __init__(
        self,
        directory: Path,
        keep: int = 2,
        small: int = 2**20,
        require: Callable[[], None] = unlocked,
    ):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.directory = Path(directory)
        self.keep = keep
        self.small = small
        self._require = require
        # The chain whose turn it is comes first.
        self._turns = deque(FileChain() for _ in range(keep))
        self._numbers: set[int] | None = None  # of all rows of the last save or load
        self._layout: Layout = {}
        self._unusable: set[Path] = set()

    def save(
        self,
        round: int,
        arrays: Mapping[str, npt.NDArray[Any]],
        rows: Rows = _NO_ROWS,
        changed: Collection[int] | None = None,
        origin: Mapping[str, str] = _NO_ORIGIN,
    ) -> None:
        """Save a checkpoint durably, then remove what it makes superfluous.

        Saving round r says that the run stands at r: checkpoints of later rounds are of a past
        that was abandoned (because one of them was damaged), and go too.

        Args:
            round: the number of finished rounds.
            arrays: name to array of booleans, integers or floats; dtypes and shapes come back
                exactly. They are written every time.
            rows: row number to arrays of the same kinds; all rows there are, and all with the same
                names, dtypes and shapes. Rows may be added over time, never removed.
            changed: the numbers of the rows that are not as they were at this object's previous
                `save` or `latest`, new ones among them; None if that is not known. The others are
                not looked at, unless it is time to write all rows again.
            origin: where the checkpoint comes from, as names and texts (see `training.origin`).

        Raises:
            UserError: it could not be written; the earlier checkpoints are all still there.
        """
        if round < 0:
            raise ValueError(f"a round is not negative: {round}")
        self._note(round, rows, None if changed is None else frozenset(changed))
        chain = self._turns[0]
        numbers, below = chain.plan()
        if not below or len(rows) * _size(self._layout) <= self.small:
            numbers, below = frozenset(rows), []
        if gone := [number for number in numbers if number not in rows]:
            raise ValueError(f"row {gone[0]} is gone, but rows are never removed")
        base = below[-1].file if below else None
        written = checkpoint_files.stacked(rows, numbers, self._layout)
        self._require()
        file = checkpoint_files.write(self.directory, round, arrays, written, base, origin)
        self._unusable.discard(file.path)
        self._turns[0] = FileChain([*below, _link(file, numbers, whole=not below)])
        self._turns.rotate(-1)
        self._clean(round)

    def latest(self, warn: Callable[[str], None], until: int | None = None) -> Saved | None:
        """The newest checkpoint that is whole, with all the files that it builds on.

        Args:
            warn: called with one sentence for every damaged file that was met.
            until: of this round or an earlier one; None: of any.

        Returns:
            The checkpoint, or None if there is none at all.

        Raises:
            UserError: there are checkpoints, but all are damaged; or one may not be read.
        """
        if (found := self._newest(warn, until, None)) is None:
            return None
        saved, chain, self._unusable = found
        # The others begin anew: their files were not read, so nothing should build on them.
        self._turns = deque([*(FileChain() for _ in range(self.keep - 1)), chain])
        self._numbers = set(saved.rows)
        self._layout = _layout(saved.rows, saved.rows)
        return saved

    def peek(
        self, warn: Callable[[str], None], rows: Collection[int] | None, until: int | None = None
    ) -> Saved | None:
        """Like `latest`, for readers that save nothing: of the rows only some.

        Files that only other rows would be read from are left alone, damaged or not.

        Args:
            warn: called with one sentence for every damaged file that was met.
            rows: the numbers of the rows that are wanted, as far as they are there; None: all.
            until: of this round or an earlier one; None: of any.

        Raises:
            UserError: there are checkpoints, but all are damaged; or one may not be read.
        """
        found = self._newest(warn, until, None if rows is None else frozenset(rows))
        return None if found is None else found[0]

    def drop_after(self, round: int) -> None:
        """Remove checkpoints of later rounds, which are of a past that was abandoned.

        Raises:
            UserError: the operating system refused.
        """
        self._remove(file for file in checkpoint_files.find(self.directory) if file.round > round)

    def drop_useless(self, fits: Callable[[Mapping[str, str]], bool]) -> None:
        """Remove checkpoints before the newest good one, which cannot be needed again.

        Args:
            fits: tells from its origin if a checkpoint that is whole is a good one.

        Raises:
            UserError: the operating system refused.
        """
        found = checkpoint_files.find(self.directory)
        good: list[File] = []
        for file in found:
            try:
                saved, _ = _load(file, set(), None)
            except (DamagedError, FileGoneError):
                continue
            if fits(saved.origin):
                good.append(file)
        needed: set[Path] = set().union(*map(self._needed, good))
        self._remove(file for file in found if good and file < good[0] and file.path not in needed)

    def rounds(self) -> list[int]:
        """The rounds for which there is a file, whole or not, in ascending order."""
        return sorted({file.round for file in checkpoint_files.find(self.directory)})

    def _newest(
        self, warn: Callable[[str], None], until: int | None, wanted: frozenset[int] | None
    ) -> tuple[Saved, FileChain, set[Path]] | None:
        """The newest checkpoint that is whole, its chain, and files that cannot be used."""
        damaged: list[str] = []
        unusable: set[Path] = set()
        for file in checkpoint_files.find(self.directory):
            if file.path in unusable:
                continue  # for a reason that is known already
            if until is not None and file.round > until:
                continue
            try:
                saved, chain = _load(file, unusable, wanted)
            except DamagedError as damage:
                damaged.append(str(damage))
                continue
            except FileGoneError:
                return self._newest(warn, until, wanted)
            for sentence in damaged:
                warn(f"{sentence}, so the previous one, of round {saved.round}, is used instead")
            return saved, chain, unusable
        if damaged:
            raise UserError(f"no checkpoint in {self.directory} can be used: " + "; ".join(damaged))
        return None

    def _note(self, round: int, rows: Rows, changed: frozenset[int] | None) -> None:
        """Note where the run stands and what changed, whether or not a save succeeds."""
        if missing := [number for number in changed or () if number not in rows]:
            raise ValueError(f"row {missing[0]} is said to have changed, but is not there")
        if changed is None or self._numbers is None:
            changed = None
            self._numbers = set(rows)
            self._layout = _layout(rows, rows)
        else:
            # Without a look at all rows: so many there must be if the new ones are all named.
            if len(self._numbers) + len(changed - self._numbers) != len(rows):
                raise ValueError("rows were added without being among the changed, or removed")
            layout = _layout(rows, changed)
            if layout and self._layout and layout != self._layout:
                raise ValueError("the rows that changed have other names, dtypes or shapes")
            self._layout = self._layout or layout
            self._numbers |= changed
        for turn, chain in enumerate(self._turns):
            if chain.links and chain.links[-1].file.round >= round:
                self._turns[turn] = FileChain()
            else:
                chain.note(changed)

    def _clean(self, round: int) -> None:
        found = checkpoint_files.find(self.directory)
        kept = {link.file.path for chain in self._turns for link in chain.links}
        # A chain that is yet to begin leaves room for a checkpoint that is on the disk already.
        room = sum(not chain.links for chain in self._turns)
        for file in found:
            if room and file.round < round and (needed := self._needed(file)).isdisjoint(kept):
                kept |= needed
                room -= bool(needed)
        self._remove(file for file in found if file.path not in kept)

    def _remove(self, superfluous: Iterable[File]) -> None:
        """Remove files, and what interrupted writes left."""
        with files.explain_os_errors("clean", self.directory):
            if not self.directory.exists():
                return
            self._require()
            files.refuse_link(self.directory)
            # The newest first, so that at no moment a file is without those that it builds on.
            for file in superfluous:
                # A folder of that name, which is no checkpoint, is left alone.
                if file.path.is_symlink() or not file.path.is_dir():
                    file.path.unlink(missing_ok=True)
            files.remove_temporaries(self.directory)

    def _needed(self, file: File) -> set[Path]:
        """A checkpoint's own file and those that it builds on; none if it cannot be used."""
        needed: set[Path] = set()
        at: File | None = file
        try:
            while at is not None:
                needed.add(at.path)
                if at.path in self._unusable:
                    raise DamagedError("for a reason that is known already")
                at = _base(at, checkpoint_files.builds_on(at))
        except (DamagedError, FileGoneError):
            # So that no file is looked at again for every one that builds on it.
            self._unusable |= needed
            return set()
        return needed


def _load(
    newest: File, unusable: set[Path], wanted: frozenset[int] | None
) -> tuple[Saved, FileChain]:
    """Read a checkpoint, every file once; those that it fails to use are added to `unusable`.

    Args:
        newest: its own file.
        unusable: files that cannot be used.
        wanted: rows to read, no further than until they are found; None: all.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    origin: dict[str, str] = {}
    rows: dict[int, dict[str, npt.NDArray[Any]]] = {}
    links: list[Link] = []
    met: list[Path] = []
    at: File | None = newest
    while at is not None:
        met.append(at.path)
        try:
            contents = checkpoint_files.read(at)
            base = _base(at, contents.builds_on)
        except (DamagedError, FileGoneError) as error:
            # A run that is being trained removes what builds on a file before it removes the file.
            if isinstance(error, FileGoneError) and not newest.path.exists():
                raise
            unusable |= set(met)
            reason = "it is missing" if isinstance(error, FileGoneError) else str(error)
            use = "" if at == newest else f", on which that of round {newest.round} builds"
            raise DamagedError(f"checkpoint {at.path} is damaged ({reason}){use}") from error
        if at == newest:
            arrays, origin = contents.arrays, contents.origin
        for position, number in enumerate(contents.numbers):
            # What was read before is newer.
            if number not in rows and (wanted is None or number in wanted):
                rows[number] = contents.row(position)
        links.append(_link(at, contents.numbers, whole=base is None))
        at = None if wanted is not None and wanted <= rows.keys() else base
    saved = Saved(newest.round, arrays, dict(sorted(rows.items())), origin)
    return saved, FileChain(links[::-1])


def _base(file: File, name: str | None) -> File | None:
    if name is None:
        return None
    if (base := checkpoint_files.named(file.path.parent, name)) is None:
        raise DamagedError(f"it builds on {name!r}, which is not a checkpoint")
    if base.round >= file.round:  # else one could follow a circle for ever
        raise DamagedError(f"it builds on {name!r}, which is not of an earlier round")
    return base


def _link(file: File, numbers: Collection[int], whole: bool) -> Link:
    return Link(file, 1 + len(numbers), frozenset() if whole else frozenset(numbers))


def _layout(rows: Rows, numbers: Collection[int]) -> Layout:
    """The layout of one of the rows, as all are to have the same."""
    return next((checkpoint_files.layout_of(rows[number]) for number in numbers), {})


def _size(layout: Layout) -> int:
    """The bytes of one row."""
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in layout.values())
