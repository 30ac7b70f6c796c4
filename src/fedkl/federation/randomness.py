"""Where all randomness comes from: the seed, a purpose, and numbers such as round and client.

No generator state exists, so none can be lost, and nothing depends on the order in which clients
finish or on whether somebody evaluated in between.
"""

from __future__ import annotations

from enum import IntEnum

import jax
from jaxtyping import PRNGKeyArray


class Purpose(IntEnum):
    """Each purpose has its own stream. The numbers are part of every saved run: never reuse one."""

    WORLDS = 0
    MODEL = 1
    SELECTION = 2
    TRAINING = 3
    EVALUATION = 4
    SHARED_WORLD = 5
    RECORDING = 6


def key_for(seed: int, purpose: Purpose, *numbers: int) -> PRNGKeyArray:
    """The key for a purpose: fold_in(seed, purpose, round, client, ...)."""
    key = jax.random.fold_in(jax.random.key(seed), purpose)
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key
