"""What training asks of a federation, wherever its rounds are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, SupportsInt

import numpy as np

from fedkl.config import Config
from fedkl.server.loop import Snapshot
from fedkl.server.records import Record


class _Position(Protocol):
    @property
    def round(self) -> SupportsInt:
        """Rounds finished."""


class Trainable(Protocol):
    """What a run is made of: a federation, here or elsewhere."""

    @property
    def config(self) -> Config:
        """The run's."""

    @property
    def state(self) -> _Position:
        """How far it is."""

    @property
    def stalled(self) -> bool:
        """Whether too many rounds in a row left the model as it was, or all there are."""

    def forgive(self) -> None:
        """Counts rounds that leave the model as it is from here on."""

    def __iter__(self) -> Iterator[Record]:
        """Runs the rounds that are left, and yields the record of each.

        Raises:
            StalledError: too many rounds in a row left the model as it was, or all there are.
        """

    def save(self) -> Snapshot:
        """All that is needed to go on; call `saved` when it is safe."""

    def saved(self, oldest: int) -> None:
        """What `save` gave is safe, and `oldest` the oldest round that may be gone back to."""

    def restore(
        self, arrays: Mapping[str, np.ndarray], rows: Mapping[int, Mapping[str, np.ndarray]]
    ) -> None:
        """Goes back to what was saved.

        Raises:
            ValueError: it is of another federation; the message says in what.
        """
