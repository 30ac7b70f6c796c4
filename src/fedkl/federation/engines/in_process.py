"""The simulation engine: all clients' local rounds run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from fedkl.federation.engines.base import Outcome, Record, clients_at_once
from fedkl.federation.settings import FederationSettings
from fedkl.learning.evaluation import episode_returns, recorded_episode
from fedkl.learning.local_training import Task, local_round
from fedkl.learning.rollout import Recording
from fedkl.learning.state import ClientState, Model
from fedkl.processes import cores

EVALUATED_AT_ONCE = 10
"""Clients evaluated in one vmapped call; about 200 episodes side by side fill the vector units."""
EPISODES_AT_ONCE = 200
"""Of a client, in one call: any number of episodes then fits into memory."""


class InProcess:
    """Runs `local_round` for the selected clients on this machine.

    On a CPU each client is one call of the same compiled function, with a thread for each core, so
    one compiled function serves every K, and a client's update is bit for bit what it would be if
    it were trained alone. On an accelerator the
    clients of a call are vmapped (`federation.clients_at_once`).
    """

    def __init__(self, task: Task, params: PyTree, settings: FederationSettings) -> None:
        """Args:
        task: world, algorithm and settings of local training.
        params: the world's params of all clients, stacked.
        settings: for `clients_at_once`.
        """
        self._task = task
        self._params = jax.device_get(params)
        self._at_once = clients_at_once(settings)
        on_cpu = jax.default_backend() == "cpu"
        self._threads = ThreadPoolExecutor(len(cores()) if on_cpu else 1)

    def train(
        self,
        model: Model,
        clients: Sequence[int],
        states: ClientState,
        keys: Sequence[PRNGKeyArray],
        shared_key: PRNGKeyArray,
    ) -> list[Outcome]:
        """One local round for each of `clients`, each in a world of its own."""
        states, params = (
            jax.tree.map(lambda x: x[list(clients)], tree) for tree in (states, self._params)
        )
        rows = list(range(len(clients)))
        if self._at_once == 1:

            def alone(i: int) -> list[Outcome]:
                row = partial(_row, i)
                args = (model, jax.tree.map(row, states), jax.tree.map(row, params), keys[i])
                return [jax.device_get(_train_one(self._task, *args))]

            chunks = self._threads.map(alone, rows)
        else:

            def together(part: list[int]) -> list[Outcome]:
                full = _padded(part, self._at_once)
                args = (
                    jax.tree.map(lambda x: x[full], states),
                    jax.tree.map(lambda x: x[full], params),
                    jax.numpy.stack([keys[i] for i in full]),
                )
                outcome = jax.device_get(_train_many(self._task, model, *args))
                return [jax.tree.map(partial(_row, j), outcome) for j in range(len(part))]

            chunks = self._threads.map(together, _parts(rows, self._at_once))
        return [outcome for chunk in chunks for outcome in chunk]

    def evaluate(
        self,
        model: Model,
        states: ClientState,
        key: PRNGKeyArray,
        episodes: int,
        deterministic: bool,
    ) -> Float[np.ndarray, "n e"]:
        """Returns of the global policy in every client's world; changes nothing."""
        n = jax.tree.leaves(self._params)[0].shape[0]
        keys = jax.random.split(key, n)
        width = min(EVALUATED_AT_ONCE, n)
        blocks = []
        for start in range(0, episodes, EPISODES_AT_ONCE):
            block_keys = (
                keys if start == 0 else jax.vmap(lambda k, s=start: jax.random.fold_in(k, s))(keys)
            )
            size = min(EPISODES_AT_ONCE, episodes - start)

            def together(
                part: list[int], keys: PRNGKeyArray = block_keys, size: int = size
            ) -> np.ndarray:
                full = np.asarray(_padded(part, width))
                rows = [
                    jax.tree.map(lambda x: x[full], tree) for tree in (states, self._params, keys)
                ]
                returns = _evaluate_many(self._task, model, *rows, size, deterministic)
                return np.asarray(returns)[: len(part)]

            parts = self._threads.map(together, _parts(list(range(n)), width))
            blocks.append(np.concatenate(list(parts)))
        return np.concatenate(blocks, axis=1)

    def record(
        self,
        model: Model,
        states: ClientState,
        key: PRNGKeyArray,
        client: int,
        deterministic: bool,
    ) -> Recording:
        """One episode of the global policy in a client's world."""
        state, params = (jax.tree.map(partial(_row, client), t) for t in (states, self._params))
        own_key = jax.random.fold_in(key, client)
        moments, reward, alive = jax.device_get(
            _record(self._task, model, state, params, own_key, deterministic)
        )
        length = int(alive.sum())
        cut = jax.tree.map(lambda x: x[: length + 1], moments)
        return Recording(cut, reward[:length], params)

    def report(self) -> Record:
        """Nothing."""
        return {}


_train_one = jax.jit(local_round)
_train_many = jax.jit(jax.vmap(local_round, in_axes=(None, None, 0, 0, 0)))
_evaluate_many: Callable[..., Array] = jax.jit(
    jax.vmap(episode_returns, in_axes=(None, None, 0, 0, 0, None, None)), static_argnums=(5, 6)
)

_record = jax.jit(recorded_episode, static_argnums=5)


def _row(i: int, x: np.ndarray) -> np.ndarray:
    return x[i]


def _parts(rows: list[int], width: int) -> Iterator[list[int]]:
    return (rows[i : i + width] for i in range(0, len(rows), width))


def _padded(part: list[int], width: int) -> list[int]:
    """`part`, with its last row repeated to `width`, so that one compiled shape serves all."""
    return part + part[-1:] * (width - len(part))
