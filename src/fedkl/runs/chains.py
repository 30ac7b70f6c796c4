"""Chains of checkpoint files, of which each holds only what changed since the one before.

Saving few changed rows must not cost what saving all of them does, and loading must not mean
reading a file for every round there ever was. So the files of a chain at least halve in size from
one to the next: a new file takes over the rows of all files at the end of the chain that are less
than twice its size, and stands in their place. A row that changed once is thus written again only
when the file it is in has grown by half, and n rows are at most about log2 n files.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from fedkl.runs.checkpoint_files import File


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
class Chain:
    """A file with all rows, and those that build on it, the newest last.

    Attributes:
        links: its files; none for a chain that is yet to begin.
        changed: the rows that changed since its newest file; None if that is not known.
    """

    links: list[Link] = dataclasses.field(default_factory=list)
    changed: set[int] | None = dataclasses.field(default_factory=set)

    def note(self, changed: frozenset[int] | None) -> None:
        """Takes note of rows that changed; None says that any may have."""
        if changed is None:
            self.changed = None
        elif self.changed is not None:
            self.changed |= changed

    def plan(self) -> tuple[frozenset[int], list[Link]]:
        """What the next file should hold, and the files that it should build on.

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
