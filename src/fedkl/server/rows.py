"""Clients' rows in a checkpoint: what the server knows of a client, and the client's own state
where the engine keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fedkl.arrays import from_arrays, to_arrays
from fedkl.clients.state import ClientState


class Refusals(NamedTuple):
    """How a client that was not believed stands."""

    times: int
    """Rounds in a row in which its answer was refused while others' were not."""
    until: int
    """The last round in which it is not asked; 0: it is."""


class Known(NamedTuple):
    """What the server and the engine know of clients."""

    since: dict[int, int]
    """The round in which each client's update was last accepted."""
    refusals: dict[int, Refusals]
    """Of those whose last answer was refused."""
    own: Mapping[int, ClientState]
    """Clients' own states, as far as the engine keeps them."""


class SavedRows(Mapping[int, dict[str, np.ndarray]]):
    """A row of named arrays for each client that has taken part, or was refused.

    It is made when it is asked for, so that saving costs what has changed, not what there is.
    """

    def __init__(self, known: Known) -> None:
        """Args:
        known: what the rows are of.
        """
        self._known = known

    def __getitem__(self, client: int) -> dict[str, np.ndarray]:
        since, refusals, own = self._known
        if client not in since and client not in refusals:
            raise KeyError(client)
        row: dict[str, object] = {"since": np.asarray(since.get(client, 0), np.int64)}
        if client in refusals:
            row["refusals"] = np.asarray(refusals[client], np.int64)
        if client in own:
            row["own"] = own[client]
        return to_arrays(row)

    def __iter__(self) -> Iterator[int]:
        since, refusals, _ = self._known
        yield from since
        yield from (client for client in refusals if client not in since)

    def __len__(self) -> int:
        since, refusals, _ = self._known
        return len(since) + sum(client not in since for client in refusals)


def read_rows(rows: Mapping[int, Mapping[str, np.ndarray]], first: ClientState) -> Known:
    """What `SavedRows` was made of.

    Args:
        rows: as saved.
        first: a client's state, for its structure.

    Raises:
        ValueError: a row is of another federation; the message says in what.
    """
    since: dict[int, int] = {}
    refusals: dict[int, Refusals] = {}
    own: dict[int, ClientState] = {}
    for client, row in rows.items():
        its = {n.removeprefix("own."): a for n, a in row.items() if n.startswith("own.")}
        rest = {n: a for n, a in row.items() if not n.startswith("own.")}
        expected = {"since": np.asarray(0, np.int64)}
        if "refusals" in rest:
            expected["refusals"] = np.zeros(2, np.int64)
        found = from_arrays(expected, rest)
        if found["since"] > 0:
            since[client] = int(found["since"])
        if "refusals" in rest:
            refusals[client] = Refusals(*(int(number) for number in found["refusals"]))
        if its:
            own[client] = from_arrays(first, its)
    return Known(since, refusals, own)
