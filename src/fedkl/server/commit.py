"""From accepted updates to the server's next state; or why there is none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import PyTree

from fedkl.algorithms.base import Algorithm
from fedkl.clients.records import Update
from fedkl.core.errors import UserError
from fedkl.io.arrays import from_arrays, mismatch, to_arrays
from fedkl.learning.randomness import Purpose, key_for
from fedkl.server.aggregation import Aggregation
from fedkl.server.state import State
from fedkl.server.validation import problem_with_model, problem_with_numbers

if TYPE_CHECKING:
    from fedkl.config.config import Config


class Next(NamedTuple):
    """The result of a round: the next state, and why the model stayed, if it did."""

    state: State
    """Of the server; `round` and the selector's state are the loop's business."""
    note: str | None
    """The reason if nothing changed."""
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
    """The state after a round, if enough updates were accepted and what they make is sound.

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
    """Cast what an algorithm gathered to the precision of what it shared.

    Raises:
        UserError: it has another structure or shape, and could not be resumed.
    """
    wanted, found = to_arrays({"shared": before}), to_arrays({"shared": after})
    found = {n: np.asarray(a, wanted[n].dtype) if n in wanted else a for n, a in found.items()}
    if problem := mismatch(wanted, found):
        raise UserError(f"what {algorithm.name} gathers does not fit what it shares: {problem}")
    return from_arrays({"shared": before}, found)["shared"]
