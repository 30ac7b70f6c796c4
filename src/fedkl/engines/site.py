"""Clients' worlds in one process, and their work there: what every engine that simulates runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from fedkl.clients.state import ClientState, Model, Task
from fedkl.clients.work import Train, Work
from fedkl.engines.alone import Asked, do, simulators_of, work_alone
from fedkl.engines.base import Failure, Job
from fedkl.heterogeneity import Measure
from fedkl.worlds.base import SoloWorld

R = TypeVar("R")

EVALUATED_AT_ONCE = 10
"""Clients evaluated in one vmapped call; about 200 episodes side by side fill the vector units."""
MEASURED_AT_ONCE = 2
"""Clients measured in one: each has 100 episodes by default, and those of ten leave the caches."""


def width_of(work: Work[Any], task: Task, at_once: int, jobs: Sequence[Job]) -> int:
    """How many clients go into one vmapped call. Bits depend on it, so all engines ask here.

    Args:
        work: what is asked.
        task: with the world that it is asked in.
        at_once: how many clients are trained together.
        jobs: all of them.
    """
    measured = MEASURED_AT_ONCE if isinstance(work, Measure) else EVALUATED_AT_ONCE
    width = at_once if isinstance(work, Train) else measured
    return min(1 if isinstance(task.world, SoloWorld) else width, len(jobs))


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
            asked = Asked(model, own, job.key)
            return [work_alone(work, self._task, asked, params, self.workers, pooled)]
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
        """Ends the simulators, if there are any."""
        if self.workers is not None:
            self.workers.close()


_do_many: Callable[..., Any] = jax.jit(jax.vmap(do, in_axes=(None, None, None, 0, 0, 0)))
_do_many_pooled: Callable[..., Any] = jax.jit(
    jax.vmap(partial(do, pooled=True), in_axes=(None, None, None, 0, None, 0))
)


def _row(i: int | np.ndarray, x: np.ndarray) -> np.ndarray | np.generic:
    return x[i]
