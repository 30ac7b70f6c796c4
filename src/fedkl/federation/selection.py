"""Which clients take part in a round."""

from __future__ import annotations

import jax
import numpy as np

from fedkl.federation.randomness import Purpose, key_for


def uniform(seed: int, round: int, clients: int, k: int) -> list[int]:
    """K of N, uniformly without replacement, from the seed and the round number alone.

    All algorithms of a comparison therefore see the same clients in the same rounds.

    Returns:
        The client numbers in ascending order.
    """
    key = key_for(seed, Purpose.SELECTION, round)
    chosen = jax.random.choice(key, clients, (k,), replace=False)
    return sorted(int(c) for c in np.asarray(chosen))
