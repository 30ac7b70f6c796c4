"""A selector of your own: clients that did badly are asked again sooner.

Whoever has never trained comes first; then chance and the return of the last training decide.

    fedkl train demo --plugin examples/own_selector.py --set selection.name=low-return-first
"""

from typing import ClassVar

import jax
import numpy as np

import fedkl


@fedkl.register_selector
class LowReturnFirst(fedkl.Selector[np.ndarray]):
    """Remembers the last training return of each client and prefers the low ones."""

    name: ClassVar[str] = "low-return-first"
    summary: ClassVar[str] = "prefers clients whose last training return was low"

    luck: float = fedkl.setting(1.0, "weight of chance beside the rank by return", low=0)

    def init(self, clients: int) -> np.ndarray:
        return np.full(clients, -np.inf)

    def __call__(self, state: np.ndarray, round: int, pool: fedkl.Pool) -> list[int]:
        rank = np.where(np.isinf(state), -np.inf, state.argsort().argsort() / pool.clients)
        dice = jax.random.uniform(jax.random.fold_in(pool.key, round), (pool.clients,))
        order = np.lexsort((dice, rank + self.luck * np.asarray(dice)))
        return sorted(order[: pool.clients_per_round].tolist())

    def observe(self, state: np.ndarray, round: int, selected: list, reports: dict) -> np.ndarray:
        returns = {client: report["train_return"] for client, report in reports.items()}
        return np.array([returns.get(client, last) for client, last in enumerate(state)])
