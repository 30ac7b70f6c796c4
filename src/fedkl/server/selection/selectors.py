"""The selectors: uniform, in turns, by given weights, by measured heterogeneity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float, Int

from fedkl.core.errors import UserError
from fedkl.core.settings import setting
from fedkl.heterogeneity.level import Level
from fedkl.server.selection.base import Pool, Selector, register_selector


@register_selector
class Uniform(Selector[tuple[()]]):
    """K of N without replacement, all alike. The seed and the round alone decide, so all
    algorithms of a comparison see the same clients in the same rounds."""

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "every client with the same probability"

    def __call__(self, state: tuple[()], round: int, pool: Pool) -> list[int]:
        key = jax.random.fold_in(pool.key, round)
        chosen = jax.random.choice(key, pool.clients, (pool.clients_per_round,), replace=False)
        return sorted(int(c) for c in np.asarray(chosen))


@register_selector
class RoundRobin(Selector[Int[np.ndarray, " n"]]):
    """Passes through all clients, each in a fresh random order (random reshuffling: see Mishchenko
    et al. 2020 for why this can beat drawing anew). The state is how many turns each client had.

    A round that needs more clients than the pass has left takes the first of the next pass that
    are not in the round already; a client that is passed over keeps its place in the next pass. A
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
    """Return the clients that have had `lap` turns, in the order of that pass."""
    order = np.asarray(jax.random.permutation(jax.random.fold_in(pool.key, lap), pool.clients))
    return order[turns[order] == lap]


@register_selector
class Weighted(Selector[tuple[()]]):
    """Draws K clients one after the other, each time in proportion to the weights of those that
    are left, all at once by the Gumbel top-k trick (Kool et al. 2019). A client of weight 0 never
    takes part."""

    name: ClassVar[str] = "weighted"
    summary: ClassVar[str] = "clients with probabilities in proportion to given weights"

    weights: tuple[float, ...] = setting(
        (), "a number for each client, of any scale, at least K of them above 0", low=0
    )

    def check(self, clients: int, clients_per_round: int) -> None:
        if (given := len(self.weights)) != clients:
            raise UserError(
                f"selection.weights must have {clients} numbers, one for each client, not {given}"
            )
        if (positive := sum(w > 0 for w in self.weights)) < clients_per_round:
            raise UserError(
                f"selection.weights must have at least {clients_per_round} numbers above 0 "
                f"(federation.clients_per_round), not {positive}"
            )

    def client_weights(self) -> tuple[float, ...]:
        return self.weights

    def __call__(self, state: tuple[()], round: int, pool: Pool) -> list[int]:
        weights = np.asarray(self.weights)
        able = np.flatnonzero(weights > 0)
        noise = jax.random.gumbel(jax.random.fold_in(pool.key, round), (len(able),))
        order = np.argsort(-(np.log(weights[able]) + np.asarray(noise)), kind="stable")
        return sorted(able[order[: pool.clients_per_round]].tolist())


Values = Float[np.ndarray, " n"]
"""The measurement of each client; NaN of those that are no candidates, or had their turn."""


class MeasuringSelector(Selector[Values]):
    """Measures some candidates every few rounds, and takes those with the largest values first.

    Nobody is selected twice on one measurement: what a client's training can do for the others
    is another thing once it has trained.
    """

    quantity: ClassVar[str]
    """The field of `Level` that is meant."""

    candidates: int = setting(
        0,
        "clients drawn and measured each time, at least measured_every * K; 0: four times that "
        "many, or all there are",
        low=0,
    )
    measured_every: int = setting(1, "rounds between two measurements", low=1)

    def check(self, clients: int, clients_per_round: int) -> None:
        least = self.measured_every * clients_per_round
        if least > clients:
            raise UserError(
                f"selection.measured_every must be at most {clients // clients_per_round}, not "
                f"{self.measured_every}: nobody is selected twice on one measurement, and "
                f"federation.clients ({clients}) last for no more rounds"
            )
        if not least <= self._number(clients, clients_per_round) <= clients:
            raise UserError(
                f"selection.candidates must be from {least} (selection.measured_every times "
                f"federation.clients_per_round) to {clients} (federation.clients), "
                f"not {self._number(clients, clients_per_round)}"
            )

    def _number(self, clients: int, clients_per_round: int) -> int:
        return self.candidates or min(4 * self.measured_every * clients_per_round, clients)

    def init(self, clients: int) -> Values:
        return np.full(clients, np.nan)

    def to_measure(self, state: Values, round: int, pool: Pool) -> list[int]:
        if round % self.measured_every:
            return []
        number = self._number(pool.clients, pool.clients_per_round)
        return sorted(_shuffled(round, pool)[:number].tolist())

    def measured(self, state: Values, levels: Mapping[int, Level]) -> Values:
        values = np.full_like(state, np.nan)
        for client, level in levels.items():
            values[client] = getattr(level, self.quantity)
        return values

    def __call__(self, state: Values, round: int, pool: Pool) -> list[int]:
        # Those who are not measured come last, in a random order: candidates may not answer.
        order = _shuffled(round, pool)
        best = order[np.argsort(-state[order], kind="stable")]  # NaN is sorted to the end
        return sorted(best[: pool.clients_per_round].tolist())

    def observe(
        self,
        state: Values,
        round: int,
        selected: Sequence[int],
        reports: Mapping[int, Mapping[str, Any]],
    ) -> Values:
        values = np.array(state)
        values[list(selected)] = np.nan
        return values


def _shuffled(round: int, pool: Pool) -> np.ndarray:
    return np.asarray(jax.random.permutation(jax.random.fold_in(pool.key, round), pool.clients))


@register_selector
class Potential(MeasuringSelector):
    """By the paper's G: the agent's own potential minus its level of heterogeneity."""

    name: ClassVar[str] = "potential"
    summary: ClassVar[str] = "the candidates with the largest G, measured every few rounds"
    quantity: ClassVar[str] = "learning_potential"


@register_selector
class Alignment(MeasuringSelector):
    """By what a small step of the agent would do for everybody."""

    name: ClassVar[str] = "alignment"
    summary: ClassVar[str] = "the candidates whose steps help all most, measured every few rounds"
    quantity: ClassVar[str] = "alignment"
