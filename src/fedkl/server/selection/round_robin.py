"""Selection in turns: everybody once before anybody twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Int

from fedkl.server.selection.base import Pool, Selector, register_selector


@register_selector
class RoundRobin(Selector[Int[np.ndarray, " n"]]):
    """Passes through all clients, each in a fresh random order (random reshuffling: see Mishchenko
    et al. 2020 for why this can beat drawing anew). The state is how many turns each client had.

    A round that needs more clients than the pass has left takes the first of the next pass that
    are not in the round already; whoever is passed over keeps the place in the next pass. A
    client whose round was rejected has had its turn.
    """

    name: ClassVar[str] = "round-robin"
    summary: ClassVar[str] = "everybody once, in a random order, before anybody twice"

    def init(self, clients: int) -> Int[np.ndarray, " n"]:
        return np.zeros(clients, np.int64)

    def __call__(self, state: Int[np.ndarray, " n"], round: int, pool: Pool) -> list[int]:
        this = int(state.min())
        waiting = _waiting(state, this, pool)
        if len(waiting) < pool.clients_per_round:
            waiting = np.concatenate([waiting, _waiting(state, this + 1, pool)])
        return sorted(waiting[: pool.clients_per_round].tolist())

    def observe(
        self,
        state: Int[np.ndarray, " n"],
        round: int,
        selected: Sequence[int],
        reports: Mapping[int, Mapping[str, Any]],
    ) -> Int[np.ndarray, " n"]:
        turns = np.array(state)
        turns[list(selected)] += 1
        return turns


def _waiting(turns: Int[np.ndarray, " n"], lap: int, pool: Pool) -> Int[np.ndarray, " m"]:
    """Who has had `lap` turns, in the order of that pass."""
    order = np.asarray(jax.random.permutation(jax.random.fold_in(pool.key, lap), pool.clients))
    return order[turns[order] == lap]
