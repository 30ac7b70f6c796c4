"""Restore a federation from the newest checkpoint that is whole and fits, beside its own log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, SupportsInt

import numpy as np

from fedkl.config.config import Config
from fedkl.core.errors import UserError
from fedkl.server.records import Record
from fedkl.server.state import Snapshot
from fedkl.training.checkpoints import Saved, require_finite
from fedkl.training.directory import RunDirectory
from fedkl.training.origin import Origin, decode


class _Position(Protocol):
    @property
    def round(self) -> SupportsInt:
        """Rounds finished."""


class Trainable(Protocol):
    """A federation that a run can train, here or elsewhere."""

    @property
    def config(self) -> Config:
        """The run's."""

    @property
    def state(self) -> _Position:
        """Its position."""

    @property
    def stalled(self) -> bool:
        """True if too many rounds in a row left the model as it was, or all there are."""

    def reset_stall_counter(self) -> None:
        """Count rounds without an update from here on."""

    def __iter__(self) -> Iterator[Record]:
        """Run the remaining rounds, and yield the record of each.

        Raises:
            StalledError: too many rounds in a row left the model as it was, or all there are.
        """

    def save(self) -> Snapshot:
        """All that is needed to resume; call `saved` when it is safe."""

    def saved(self, oldest: int) -> None:
        """Note that a snapshot of `save` is safe, and `oldest` the oldest round that may be gone
        back to."""

    def restore(
        self, arrays: Mapping[str, np.ndarray], rows: Mapping[int, Mapping[str, np.ndarray]]
    ) -> None:
        """Restore a snapshot.

        Raises:
            ValueError: it is of another federation; the message says in what.
        """


Warn = Callable[[str], None]
Check = Callable[[Origin, int], None]


def restore(
    run: RunDirectory,
    federation: Trainable,
    warn: Warn,
    check: Check,
    until: int | None = None,
    best: bool = False,
) -> Origin | None:
    """Move a federation to the run's newest checkpoint that is whole and fits, or its best.

    Args:
        run: the run's directory.
        federation: of the run's config.
        warn: is notified of each checkpoint that cannot be used.
        check: is shown the origin and the round of a checkpoint that says one, and raises if it is
            not to be used. It comes before shapes: settings say more than they do.
        until: only one of this round or an earlier one; None: of any.
        best: that of the best evaluated round.

    Returns:
        What the checkpoint was made with; None if it does not say, or if there is none.

    Raises:
        UserError: there are checkpoints, but none can be used.
    """
    if best:
        if (kept := run.checkpoint(warn, best)) is None:
            return None
        try:
            return _move(federation, kept, check)
        except ValueError as error:
            raise _misfit(run, error) from error
    unfit: list[tuple[int, ValueError]] = []
    while (found := run.checkpoints.latest(warn, until)) is not None:
        try:
            origin = _move(federation, found, check)
        except ValueError as error:
            unfit.append((found.round, error))
            until = found.round - 1
            continue
        for round, problem in unfit:
            warn(
                f"the checkpoint of round {round} does not fit config.toml ({problem}), so that "
                f"of round {found.round} is used instead"
            )
        return origin
    if unfit:
        _, first = unfit[0]
        raise _misfit(run, first) from first
    return None


def _move(federation: Trainable, saved: Saved, check: Check) -> Origin | None:
    """Move a federation to a checkpoint.

    Returns:
        What it was made with; None if it does not say.

    Raises:
        ValueError: it is not of this federation, or has numbers that no server takes.
    """
    if (origin := decode(saved.origin)) is not None:
        check(origin, saved.round)
    _require_round(saved.round, saved.arrays)
    require_finite(saved.arrays, "model.")
    federation.restore(saved.arrays, saved.rows)
    return origin


def _misfit(run: RunDirectory, error: ValueError) -> UserError:
    return UserError(f"{run.path}: the checkpoint does not fit config.toml: {error}")


def _require_round(round: int, arrays: dict[str, Any]) -> None:
    inside = arrays.get("round")
    if inside is not None and inside.ndim == 0 and inside != round:
        raise ValueError(f"it is of round {inside}, not of the one in its name")
