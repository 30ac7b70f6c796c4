"""All randomness: folded from the seed, a purpose, and numbers such as round and client.

No generator state exists, so none can be lost, and nothing depends on the order in which clients
finish or on whether there was an evaluation in between.
"""

from __future__ import annotations

from enum import IntEnum

import jax
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray, UInt32


class Purpose(IntEnum):
    """Each purpose has its own stream. The numbers are part of every saved run: never reuse one."""

    WORLDS = 0
    MODEL = 1
    SELECTION = 2
    TRAINING = 3
    EVALUATION = 4
    SHARED_WORLD = 5
    RECORDING = 6
    AGGREGATION = 7
    EVALUATED = 8
    HETEROGENEITY = 9


def key_for(seed: int, purpose: Purpose, *numbers: int) -> PRNGKeyArray:
    """The key for a purpose: fold_in(seed, purpose, round, client, ...)."""
    return _key(seed, np.asarray([purpose, *numbers]))


def key_data_for(
    seed: int, purpose: Purpose, numbers: Int[np.ndarray, "k m"]
) -> UInt32[np.ndarray, "k w"]:
    """`key_for` of each row of numbers, as plain numbers, in one call however many there are."""
    first = np.full((len(numbers), 1), purpose)
    return np.asarray(_key_data(seed, np.concatenate([first, numbers], axis=1)))


def key_data_of(key: Key[Array, "*n"]) -> UInt32[np.ndarray, "*n w"]:
    """Return keys as plain numbers."""
    return np.asarray(jax.random.key_data(key))


# Compiled, because a round asks for a dozen keys, and each step by itself costs as much as all.


def _folded(seed: Int[Array, ""] | int, numbers: Int[Array, " m"]) -> PRNGKeyArray:
    key = jax.random.key(seed)
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


_key = jax.jit(_folded)
_key_data = jax.jit(
    jax.vmap(lambda seed, numbers: jax.random.key_data(_folded(seed, numbers)), (None, 0))
)
