"""Clients whose answers were refused: how often in a row, and who is not asked for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from fedkl.core.text import counted
from fedkl.server.settings import FederationSettings


class Refusals(NamedTuple):
    """The standing of a client whose answers were refused."""

    times: int = 0
    """Rounds in a row in which its answer was refused while others' were not."""
    until: int = 0
    """The last round in which it is not asked; 0: it is."""


def not_asked(
    refusals: Mapping[int, Refusals], t: int, selected: Sequence[int], quorum: int
) -> dict[int, str]:
    """Return why some of the selected clients are not asked: they were refused again and again.

    If too few were left everybody is asked: it may be that not the clients are to blame.
    """
    out = {}
    for client in selected:
        times, until = refusals.get(client, Refusals())
        if until > t:
            out[client] = (
                f"its answers were refused in {counted(times, 'round')} in a row: it is not "
                f"asked up to round {until}"
            )
    return out if len(selected) - len(out) >= quorum else {}


def after_round(
    refusals: Mapping[int, Refusals],
    settings: FederationSettings,
    t: int,
    kept: Sequence[int],
    refused: frozenset[int],
) -> dict[int, Refusals]:
    """Return the standing of clients after a round, by who was believed and who was refused.

    A round that left the model as it was counts against no client.
    """
    after = {client: one for client, one in refusals.items() if client not in kept}
    for client in refused if kept else ():
        times = after.get(client, Refusals()).times + 1
        out = 0 < settings.suspend_after <= times
        after[client] = Refusals(times, t + 1 + settings.suspend_rounds if out else 0)
    return after


def encode(refusals: Mapping[int, Refusals]) -> Int[np.ndarray, "r 3"]:
    """Encode the standing of refused clients, a row of numbers for each: client, times, until.

    It is the server's: a client that was never believed has no row of its own.

    Example:
        >>> encode({5: Refusals(4, 19)}).tolist()
        [[5, 4, 19]]
    """
    rows = [[client, *one] for client, one in sorted(refusals.items())]
    return np.asarray(rows, np.int64).reshape(-1, 3)


def decode(array: np.ndarray) -> dict[int, Refusals]:
    """Decode what `encode` made.

    Raises:
        ValueError: it is no such array.
    """
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype != np.int64:
        raise ValueError(f"refusals are {array.dtype} of shape {array.shape}, not rows of three")
    return {int(client): Refusals(int(times), int(until)) for client, times, until in array}
