"""The server's whole state: what is trained on, saved and resumed. Clients keep their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int, PyTree

from fedkl.clients.records import PARTS, ClientState, Kind, Model, Task
from fedkl.clients.round import global_behaviour
from fedkl.io.arrays import AnyArray, from_arrays, to_arrays
from fedkl.server.outliers import Usual
from fedkl.simulators.policy import Policy
from fedkl.simulators.spaces import Spaces


class State(eqx.Module):
    """Everything the server needs to resume, apart from its config. All leaves are NumPy arrays."""

    round: Int[AnyArray, ""]
    """Rounds finished."""
    env_steps: Int[AnyArray, ""]
    """Training steps of all accepted updates so far."""
    empty_rounds: Int[AnyArray, ""]
    """Rounds in a row, up to now, that left the model as it was."""
    model: Model
    selector: PyTree
    aggregation: PyTree
    usual: Usual
    """The traits of past answers, which new ones are compared with."""


def at_the_server(model: Model) -> Model:
    """A fresh model as the server keeps it: moments in float64.

    Beyond 2^24 samples float32 no longer counts exactly.
    """
    names = [n for n, kind in PARTS.items() if kind is Kind.MOMENTS]
    return eqx.tree_at(
        lambda m: [getattr(m, n) for n in names],
        model,
        [jax.tree.map(lambda x: np.asarray(x, np.float64), getattr(model, n)) for n in names],
        is_leaf=lambda x: x is None,
    )


def broadcast(model: Model) -> Model:
    """The model as it is sent: clients take float32."""

    def narrow(x: AnyArray) -> np.ndarray:
        return np.asarray(x, np.float32 if np.issubdtype(x.dtype, np.floating) else x.dtype)

    return jax.tree.map(narrow, model)


class Snapshot(NamedTuple):
    """All that is needed to resume."""

    arrays: dict[str, np.ndarray]
    """The server's."""
    rows: Mapping[int, Mapping[str, np.ndarray]]
    """One for each client that has taken part, read from the engine when it is asked for."""
    changed: frozenset[int]
    """The rows that are not as they were when the run was last saved."""


class Known(NamedTuple):
    """The clients' states, as far as the server and the engine know them."""

    since: dict[int, int]
    """The round in which each client's update was last accepted."""
    own: Mapping[int, ClientState]
    """Clients' own states, as far as the engine keeps them."""


def acting(task: Task, state: State, client: ClientState) -> Policy:
    """Return the policy of a state, to act with in NumPy.

    Args:
        task: whose world says what it sees and does.
        state: of the server.
        client: has nothing of its own.
    """
    behaviour = global_behaviour(task, broadcast(state.model), client)
    actor = jax.device_get(behaviour.actor())
    log_std = behaviour.policy.log_std
    actor = actor._replace(
        # NumPy's exponential, as of one that is loaded: samples are the same, too.
        deviation=None if log_std is None else np.exp(np.asarray(log_std, np.float32)),
        clip=float(actor.clip),
        exploration=0.0,
        temperature=1.0,
    )
    spaces = Spaces(task.world.observation_size, task.world.actuators)
    return Policy(actor, spaces, int(state.round))


class SavedRows(Mapping[int, dict[str, np.ndarray]]):
    """A row of named arrays for each client that has taken part; all have the same names.

    It is made when it is asked for, so that saving costs what has changed, not what there is.
    """

    def __init__(self, known: Known) -> None:
        """Args:
        known: what the rows are of.
        """
        self._known = known

    def __getitem__(self, client: int) -> dict[str, np.ndarray]:
        since, own = self._known
        row: dict[str, object] = {"since": np.asarray(since[client], np.int64)}
        if client in own:
            row["own"] = own[client]
        return to_arrays(row)

    def __iter__(self) -> Iterator[int]:
        yield from self._known.since

    def __len__(self) -> int:
        return len(self._known.since)


def read_rows(rows: Mapping[int, Mapping[str, np.ndarray]], first: ClientState) -> Known:
    """Decode what `SavedRows` was made of.

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
    return Known(since, own)
