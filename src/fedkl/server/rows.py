"""Clients' rows in a checkpoint: what the server knows of a client, and the client's own state
where the engine keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedkl.arrays import from_arrays, to_arrays
from fedkl.clients.state import ClientState


class SavedRows(Mapping[int, dict[str, np.ndarray]]):
    """A row of named arrays for each client that has taken part.

    It is made when it is asked for, so that saving costs what has changed, not what there is.
    """

    def __init__(self, since: Mapping[int, int], own: Mapping[int, ClientState]) -> None:
        """Args:
        since: the round in which each client's update was last accepted.
        own: clients' own states, as far as the engine keeps them.
        """
        self._since = since
        self._own = own

    def __getitem__(self, client: int) -> dict[str, np.ndarray]:
        row: dict[str, object] = {"since": np.asarray(self._since[client], np.int64)}
        if client in self._own:
            row["own"] = self._own[client]
        return to_arrays(row)

    def __iter__(self) -> Iterator[int]:
        return iter(self._since)

    def __len__(self) -> int:
        return len(self._since)


def read_rows(
    rows: Mapping[int, Mapping[str, np.ndarray]], first: ClientState
) -> tuple[dict[int, int], dict[int, ClientState]]:
    """What `SavedRows` was made of.

    Args:
        rows: as saved.
        first: a client's state, for its structure.

    Raises:
        ValueError: a row is of another federation; the message says in what.
    """
    since: dict[int, int] = {}
    own: dict[int, ClientState] = {}
    for client, row in rows.items():
        its = {n.removeprefix("own."): a for n, a in row.items() if n.startswith("own.")}
        rest = {n: a for n, a in row.items() if not n.startswith("own.")}
        since[client] = int(from_arrays({"since": np.asarray(0, np.int64)}, rest)["since"])
        if its:
            own[client] = from_arrays(first, its)
    return since, own
