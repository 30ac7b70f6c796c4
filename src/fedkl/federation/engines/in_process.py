"""The simulation engine: all clients' local rounds run in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from fedkl.federation.settings import FederationSettings
from fedkl.learning.evaluation import episode_returns
from fedkl.learning.local_training import Task, local_round
from fedkl.learning.state import ClientState, Metrics, Model, Update

EVALUATED_AT_ONCE = 10
"""Clients evaluated in one vmapped call; about 200 episodes side by side fill the vector units."""

Outcome = tuple[Update, ClientState, Metrics]


class InProcess:
    """Runs `local_round` for the selected clients on this machine.

    On a CPU each client is one call of the same compiled function, with a thread for each core:
    batched small matrix products gain nothing there, one compiled function serves every K, and a
    client's update is bit for bit what it would be if it were trained alone. On an accelerator the
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
        on_cpu = jax.default_backend() == "cpu"
        k = settings.clients_per_round
        self._at_once = min(settings.clients_at_once or (1 if on_cpu else k), k)
        self._threads = ThreadPoolExecutor(_cores() if on_cpu else 1)

    def train(
        self,
        model: Model,
        clients: Sequence[int],
        states: ClientState,
        keys: Sequence[PRNGKeyArray],
    ) -> list[Outcome]:
        """One local round for each of `clients`.

        Args:
            model: the broadcast model.
            clients: which clients.
            states: their states, stacked.
            keys: a key for each.

        Returns:
            Update, new state and metrics of each, as NumPy arrays, in the order of `clients`.
        """
        params = jax.tree.map(lambda x: x[list(clients)], self._params)
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
        keys: PRNGKeyArray,
        episodes: int,
        deterministic: bool,
    ) -> Float[np.ndarray, "n e"]:
        """Returns of the global policy in every client's world; changes nothing.

        Args:
            model: the broadcast model.
            states: all clients' states.
            keys: a key for each client, stacked.
            episodes: for each client.
            deterministic: take the mode of the policy instead of a sample.
        """
        n = len(keys)
        width = min(EVALUATED_AT_ONCE, n)

        def together(part: list[int]) -> np.ndarray:
            full = np.asarray(_padded(part, width))
            rows = [jax.tree.map(lambda x: x[full], tree) for tree in (states, self._params, keys)]
            returns = _evaluate_many(self._task, model, *rows, episodes, deterministic)
            return np.asarray(returns)[: len(part)]

        return np.concatenate(list(self._threads.map(together, _parts(list(range(n)), width))))


_train_one = jax.jit(local_round)
_train_many = jax.jit(jax.vmap(local_round, in_axes=(None, None, 0, 0, 0)))
_evaluate_many: Callable[..., Array] = jax.jit(
    jax.vmap(episode_returns, in_axes=(None, None, 0, 0, 0, None, None)), static_argnums=(5, 6)
)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _row(i: int, x: np.ndarray) -> np.ndarray:
    return x[i]


def _parts(rows: list[int], width: int) -> Iterator[list[int]]:
    return (rows[i : i + width] for i in range(0, len(rows), width))


def _padded(part: list[int], width: int) -> list[int]:
    """`part`, with its last row repeated to `width`, so that one compiled shape serves all."""
    return part + part[-1:] * (width - len(part))
