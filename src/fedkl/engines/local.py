"""The work of clients whose worlds are in this process, one by itself or several in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, UInt32

from fedkl.clients.records import ClientState, Model, Start, Task
from fedkl.clients.sources import source_of
from fedkl.clients.work import Train, Work
from fedkl.engines.base import Failure, Job, KeyData
from fedkl.heterogeneity import Measure
from fedkl.simulators.base import EpisodeLostError
from fedkl.simulators.pool import Workers
from fedkl.worlds.base import HostedWorld

R = TypeVar("R")


def simulators_of(task: Task) -> Workers | None:
    """The processes that simulate the task's world, if it is one on the host.

    Raises:
        UserError: its simulator cannot run here.
    """
    if not isinstance(task.world, HostedWorld):
        return None
    return Workers(task.world.simulator(), task.world.patience)


def work_alone(
    work: Work[R],
    task: Task,
    model: Model,
    own: ClientState,
    key: KeyData,
    params: PyTree,
    workers: Workers | None,
    pooled: bool = False,
) -> tuple[R | Failure, ClientState | None]:
    """A client's answer, and its state afterwards (None: as it was), as NumPy arrays.

    Args:
        work: what is asked.
        task: world, algorithm and settings of local training.
        model: what was broadcast.
        own: the client's state.
        key: of the job.
        params: its row of the world's params.
        workers: as `simulators_of` gives them.
        pooled: whether it works in the worlds of all clients; `params` are those of all then.
    """
    if workers is None:
        return jax.device_get(_do_one(work, task, model, own, params, key, pooled=pooled))
    source = source_of(task.world, params, workers, pooled)
    start = Start(model, own, jax.random.wrap_key_data(jnp.asarray(key)))
    try:
        return jax.device_get(work(task, start, source))
    except EpisodeLostError as error:  # this client's simulator is its own
        return Failure(str(error)), None


def compile_alone(
    work: Work[Any], task: Task, model: Model, own: ClientState, key: KeyData, params: PyTree
) -> None:
    """Compile what `work_alone` calls for a world that is traced, without doing the work.

    Args:
        work, task, model, own, key, params: as `work_alone` has them.
    """
    _do_one.lower(work, task, model, own, params, key, pooled=False).compile()


def do(
    work: Work[Any],
    task: Task,
    model: Model,
    own: ClientState,
    params: PyTree,
    key: UInt32[Any, " w"],
    pooled: bool = False,
) -> tuple[Any, ClientState | None]:
    """The work of a client whose world is traced, to be compiled."""
    source = source_of(task.world, params, None, pooled)
    return work(task, Start(model, own, jax.random.wrap_key_data(key)), source)


_do_one: Any = jax.jit(do, static_argnames="pooled")


EVALUATED_AT_ONCE = 10
"""Clients evaluated in one vmapped call; about 200 episodes side by side fill the vector units."""
MEASURED_AT_ONCE = 2
"""Clients measured in one: each has 100 episodes by default, and those of ten leave the caches."""


def width_of(work: Work[Any], task: Task, at_once: int, jobs: Sequence[Job]) -> int:
    """Return the number of clients in one vmapped call. Bits depend on it, so all engines ask here.

    Args:
        work: what is asked.
        task: with the world that it is asked in.
        at_once: how many clients are trained together.
        jobs: all of them.
    """
    measured = MEASURED_AT_ONCE if isinstance(work, Measure) else EVALUATED_AT_ONCE
    width = at_once if isinstance(work, Train) else measured
    return min(1 if task.world.is_hosted else width, len(jobs))


class Site:
    """The worlds of clients that do not share theirs, with their simulators if they need any."""

    def __init__(self, task: Task, params: PyTree, pooled: bool = False) -> None:
        """Args:
        task: world, algorithm and settings of local training.
        params: the world's params of all clients, stacked.
        pooled: whether a client that trains does so in the worlds of all.

        Raises:
            UserError: the world's simulator cannot run here.
        """
        self._task = task
        self._params = jax.device_get(params)
        self._pooled = pooled
        self.workers = simulators_of(task)

    def do(
        self,
        work: Work[R],
        model: Model,
        jobs: Sequence[Job],
        states: Sequence[ClientState],
        width: int,
    ) -> list[tuple[R | Failure, ClientState | None]]:
        """Each client's answer, and its state afterwards (None: as it was), as NumPy arrays.

        Args:
            work: what is asked.
            model: what the clients start from.
            jobs: a part, as `parts_of` makes them.
            states: the clients' own.
            width: as `width_of` says.
        """
        pooled = self._pooled and isinstance(work, Train)
        if width == 1:
            (job,), (own,) = jobs, states
            params = self._params_of(job.client, pooled)
            own_start = (model, own, job.key)
            return [work_alone(work, self._task, *own_start, params, self.workers, pooled)]
        # Padded, so that one compiled shape serves all.
        missing = width - len(jobs)
        full, owns = [*jobs, *[jobs[-1]] * missing], [*states, *[states[-1]] * missing]
        params = self._params_of(np.asarray([job.client for job in full]), pooled)
        stacked = jax.tree.map(lambda *x: np.stack(x), *owns)
        keys = np.stack([job.key for job in full])
        do_many = _do_many_pooled if pooled else _do_many
        done = jax.device_get(do_many(work, self._task, model, stacked, params, keys))
        return [jax.tree.map(partial(_row, i), done) for i in range(len(jobs))]

    def _params_of(self, clients: int | np.ndarray, pooled: bool) -> PyTree:
        """The rows of the worlds that some clients work in: their own, or all there are."""
        return self._params if pooled else jax.tree.map(partial(_row, clients), self._params)

    def close(self) -> None:
        """End the simulators, if there are any."""
        if self.workers is not None:
            self.workers.close()


_do_many: Callable[..., Any] = jax.jit(jax.vmap(do, in_axes=(None, None, None, 0, 0, 0)))
_do_many_pooled: Callable[..., Any] = jax.jit(
    jax.vmap(partial(do, pooled=True), in_axes=(None, None, None, 0, None, 0))
)


def _row(i: int | np.ndarray, x: np.ndarray) -> np.ndarray | np.generic:
    return x[i]
