"""Episodes of all clients' worlds: what a learner collects that has everybody's data.

The world is drawn anew, each with the same probability, for each column: an episode, or the
episodes that fill its time limit. So every world has the same share of the steps, as every client
has in a federation, however long its episodes are.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray, PyTree

from fedkl.clients.sources.base import Recording
from fedkl.clients.sources.hosted import COLUMNS_IN_A_JOB, Hosted
from fedkl.clients.sources.traced import Act, Traced
from fedkl.simulators.base import Seed

WHOSE = 2
"""Folded into the key that worlds are drawn by; what it is split into for episodes is 0 and 1."""


class PooledTraced(Traced):
    """Worlds inside jit; `params` are those of all clients, stacked."""

    def _params_of(self, columns: int, key: PRNGKeyArray) -> tuple[PyTree, int]:
        key = jax.random.fold_in(key, WHOSE)
        drawn = jax.random.randint(key, (columns,), 0, _clients(self.params))
        return jax.tree.map(lambda x: x[drawn], self.params), 0

    def record(self, behaviour: Act, key: PRNGKeyArray) -> Recording:
        """One episode in one of the worlds."""
        drawn, _ = self._params_of(1, key)
        one = Traced(self.world, jax.tree.map(lambda x: x[0], drawn))
        return one.record(behaviour, key)


class PooledHosted(Hosted):
    """Simulators on the host; `params` are those of all clients, stacked."""

    def _parts(self, columns: int, seed: Seed) -> list[tuple[Int[np.ndarray, " c"], PyTree]]:
        random = seed.fold(columns, WHOSE).generator()
        drawn = random.integers(_clients(self._params), size=columns)
        parts = []
        for client in np.unique(drawn).tolist():
            own = np.flatnonzero(drawn == client)
            params = jax.tree.map(lambda x, client=client: x[client], self._params)
            jobs = -(-len(own) // max(COLUMNS_IN_A_JOB))
            parts += [(part, params) for part in np.array_split(own, jobs)]
        return parts


def _clients(params: PyTree) -> int:
    """The number of clients in stacked params; 1 where worlds have no params."""
    return max((len(x) for x in jax.tree.leaves(params)), default=1)
