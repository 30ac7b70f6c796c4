"""Selection by what was measured: who can contribute most to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from fedkl.errors import UserError
from fedkl.heterogeneity.level import Level
from fedkl.server.selection.base import Pool, Selector, register_selector
from fedkl.settings import setting

Values = Float[np.ndarray, " n"]
"""What was measured of each client; NaN of those who are not candidates, or had their turn."""


class Measured(Selector[Values]):
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
        """How many are measured."""
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
class Potential(Measured):
    """By the paper's G: the agent's own potential minus its level of heterogeneity."""

    name: ClassVar[str] = "potential"
    summary: ClassVar[str] = "the candidates with the largest G, measured every few rounds"
    quantity: ClassVar[str] = "learning_potential"


@register_selector
class Alignment(Measured):
    """By what a small step of the agent would do for everybody."""

    name: ClassVar[str] = "alignment"
    summary: ClassVar[str] = "the candidates whose steps help all most, measured every few rounds"
    quantity: ClassVar[str] = "alignment"
