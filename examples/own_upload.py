"""A link of the client's chain of your own: only the largest numbers of a move are sent.

Top-k sparsification (Aji and Heafield 2017), without a memory of what was left out.

    fedkl train demo --plugin examples/own_upload.py --set 'upload.each=["top"]' upload.share=0.1
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

import fedkl


@fedkl.register_upload
class Top(fedkl.Upload):
    """Keeps the numbers that moved furthest, and leaves all others as they were broadcast."""

    name: ClassVar[str] = "top"
    summary: ClassVar[str] = "only the share of numbers that moved furthest is sent"

    share: float = fedkl.setting(0.1, "of a network's numbers that are sent", above=0, high=1)

    def __call__(self, move: jax.Array, key: jax.Array) -> jax.Array:
        least = jnp.sort(jnp.abs(move))[jnp.int32((1 - self.share) * move.size)]
        return jnp.where(jnp.abs(move) >= least, move, 0.0)
