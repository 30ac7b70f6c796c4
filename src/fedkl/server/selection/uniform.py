"""Uniform selection: what the paper and most others do."""

from __future__ import annotations

from typing import ClassVar

import jax
import numpy as np

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
