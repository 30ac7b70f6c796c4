"""Selection by given weights."""

from __future__ import annotations

from typing import ClassVar

import jax
import numpy as np

from fedkl.errors import UserError
from fedkl.server.selection.base import Pool, Selector, register_selector
from fedkl.settings import setting


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
