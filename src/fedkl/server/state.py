"""The server's whole state: what is trained on, saved and resumed. Clients keep their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int, PyTree

from fedkl.algorithms.base import Algorithm
from fedkl.clients.records import PARTS, ClientState, Kind, Model, Update
from fedkl.core.errors import UserError
from fedkl.io.arrays import AnyArray, from_arrays, mismatch, to_arrays
from fedkl.learning.randomness import Purpose, key_for
from fedkl.server.aggregation import Aggregation
from fedkl.server.outliers import Usual
from fedkl.server.validation import problem_with_model, problem_with_numbers

if TYPE_CHECKING:
    from fedkl.config.config import Config


class State(eqx.Module):
    """Everything the server needs to go on, apart from its config. All leaves are NumPy arrays."""

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
    """What clients said in the last rounds, which answers are compared with."""


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
    own: Mapping[int, ClientState]
    """Clients' own states, as far as the engine keeps them."""


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


def refusals_array(refusals: Mapping[int, Refusals]) -> Int[np.ndarray, "r 3"]:
    """How refused clients stand, a row of numbers for each: client, times, until.

    It is the server's: a client that was never believed has no row of its own.

    Example:
        >>> refusals_array({5: Refusals(4, 19)}).tolist()
        [[5, 4, 19]]
    """
    rows = [[client, *one] for client, one in sorted(refusals.items())]
    return np.asarray(rows, np.int64).reshape(-1, 3)


def read_refusals(array: np.ndarray) -> dict[int, Refusals]:
    """What `refusals_array` was made of.

    Raises:
        ValueError: it is no such array.
    """
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype != np.int64:
        raise ValueError(f"refusals are {array.dtype} of shape {array.shape}, not rows of three")
    return {int(client): Refusals(int(times), int(until)) for client, times, until in array}


def read_rows(rows: Mapping[int, Mapping[str, np.ndarray]], first: ClientState) -> Known:
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
    return Known(since, own)


class Next(NamedTuple):
    """What a round comes to."""

    state: State
    """Of the server; `round` and the selector's state are the loop's business."""
    note: str | None
    """Why nothing changed, if so."""
    bytes_down: int = 0
    """From the global server to those of regions, where there are any."""
    bytes_up: int = 0


def next_state(
    config: Config,
    aggregation: Aggregation,
    before: State,
    updates: Mapping[int, Update],
    refused: Collection[int],
) -> Next:
    """The state after a round, if enough updates came and what they make is sound.

    Args:
        config: the run's.
        aggregation: the chain, or the two of them that regions make.
        before: the state before the round.
        updates: those that were accepted.
        refused: clients that were not believed, in this round or again and again before.
    """
    quorum, t = config.federation.quorum, int(before.round)
    if len(updates) < quorum:
        note = f"{len(updates)} accepted updates, fewer than the quorum of {quorum}"
        return Next(before, note)
    ordered = {client: updates[client] for client in sorted(updates)}
    key = key_for(config.seed, Purpose.AGGREGATION, t)
    made = aggregation(before.aggregation, t, before.model, ordered, key, refused)
    messages = [update.message for update in ordered.values()]
    shared = config.algorithm.gather(before.model.shared, messages, config.federation.clients)
    model = replace(made.model, shared=_fitting(config.algorithm, before.model.shared, shared))
    most = config.federation.max_magnitude
    if problem := problem_with_model(model, most) or problem_with_numbers(made.state):
        return Next(before, f"the aggregate was not taken: {problem}")
    steps = sum(int(update.weight) for update in ordered.values())
    after = replace(before, env_steps=before.env_steps + steps, model=model, aggregation=made.state)
    return Next(after, None, made.bytes_down, made.bytes_up)


def _fitting(algorithm: Algorithm, before: PyTree, after: PyTree) -> PyTree:
    """What an algorithm gathered, in the precision of what it shared.

    Raises:
        UserError: it has another structure or shape, and could not be resumed.
    """
    wanted, found = to_arrays({"shared": before}), to_arrays({"shared": after})
    found = {n: np.asarray(a, wanted[n].dtype) if n in wanted else a for n, a in found.items()}
    if problem := mismatch(wanted, found):
        raise UserError(f"what {algorithm.name} gathers does not fit what it shares: {problem}")
    return from_arrays({"shared": before}, found)["shared"]
