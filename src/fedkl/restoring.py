"""Going on from a checkpoint: the newest that is whole and fits, beside its own log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedkl.errors import UserError
from fedkl.runs import RunDirectory, Saved
from fedkl.runs.origins import Origin, decode
from fedkl.trainable import Trainable

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
    """Moves a federation to the run's newest checkpoint that is whole and fits, or its best.

    Args:
        run: the run's directory.
        federation: of the run's config.
        warn: is told of each checkpoint that cannot be used.
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
    """Moves a federation to a checkpoint.

    Returns:
        What it was made with; None if it does not say.

    Raises:
        ValueError: it is not of this federation.
    """
    if (origin := decode(saved.origin)) is not None:
        check(origin, saved.round)
    _require_round(saved.round, saved.arrays)
    federation.restore(saved.arrays, saved.rows)
    return origin


def _misfit(run: RunDirectory, error: ValueError) -> UserError:
    return UserError(f"{run.path}: the checkpoint does not fit config.toml: {error}")


def _require_round(round: int, arrays: dict[str, Any]) -> None:
    inside = arrays.get("round")
    if inside is not None and inside.ndim == 0 and inside != round:
        raise ValueError(f"it is of round {inside}, not of the one in its name")
