"""The simulation engine: every client has a world of its own, and all run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, UInt32

from fedkl.clients.carry import Start
from fedkl.clients.sources import Hosted, Source, Traced
from fedkl.clients.state import ClientState, Model, Task
from fedkl.clients.work import Train, Work
from fedkl.engines.base import Failure, Job, Report, Rows, Words, parts_of
from fedkl.heterogeneity import Measure
from fedkl.processes import cores
from fedkl.simulators.base import EpisodeLostError
from fedkl.simulators.pool import Workers
from fedkl.worlds.base import SoloWorld, World

R = TypeVar("R")

EVALUATED_AT_ONCE = 10
"""Clients evaluated in one vmapped call; about 200 episodes side by side fill the vector units."""


class InProcess(Rows):
    """Does clients' work on this machine.

    On a CPU each client that trains is one call of the same compiled function, with a thread for
    each core, so one compiled function serves every K, and a client's update is bit for bit what it
    would be if it were trained alone. On an accelerator the clients of a call are vmapped
    (`federation.clients_at_once`). Clients with a simulator on the host share the threads, and
    take turns with the simulators' processes.
    """

    def __init__(self, task: Task, first: ClientState, params: PyTree, at_once: int) -> None:
        """Args:
        task: world, algorithm and settings of local training.
        first: every client's state before its first round.
        params: the world's params of all clients, stacked.
        at_once: how many clients are trained in one vmapped call.

        Raises:
            UserError: the world's simulator cannot run here.
        """
        super().__init__(first)
        self._task = task
        self._params = jax.device_get(params)
        self._at_once = at_once
        on_cpu = jax.default_backend() == "cpu"
        self._threads = ThreadPoolExecutor(len(cores()) if on_cpu else 1)
        self._workers = None
        if isinstance(task.world, SoloWorld):
            self._workers = Workers(task.world.simulator(), task.world.patience)

    def run(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: Words
    ) -> Iterator[tuple[int, R | Failure]]:
        """Every client's answer, in the order of the jobs as far as they share a model."""
        width = self._at_once if isinstance(work, Train) else EVALUATED_AT_ONCE
        width = min(1 if self._workers else width, len(jobs))

        def together(model: Model, part: list[Job]) -> list[tuple[int, R | Failure]]:
            if width == 1:
                answers = [self._alone(work, model, part[0])]
            else:
                answers = self._vmapped(work, model, part, width)
            return [
                (job.client, self.propose(job.client, after, answer))
                for job, (answer, after) in zip(part, answers, strict=True)
            ]

        parts = parts_of(jobs, model, width)
        # A measurement's matrix products are large enough to be shared among XLA's own threads: two
        # calls at once can wait for each other there for ever.
        side_by_side = map if isinstance(work, Measure) else self._threads.map
        for answers in side_by_side(lambda args: together(*args), parts):
            yield from answers

    def report(self) -> Report:
        """How many simulators were replaced so far, where there are any."""
        return {} if self._workers is None else {"simulators_replaced": self._workers.replaced}

    def close(self) -> None:
        """Ends the threads, and the simulators, if any."""
        self._threads.shutdown()
        if self._workers is not None:
            self._workers.close()

    def _alone(
        self, work: Work[R], model: Model, job: Job
    ) -> tuple[R | Failure, ClientState | None]:
        own, params = self.own_of(job), jax.tree.map(partial(_row, job.client), self._params)
        if self._workers is None:
            return jax.device_get(_do_one(work, self._task, model, own, params, job.key))
        world = self._task.world
        assert isinstance(world, SoloWorld)
        source = Hosted(self._workers, params, world.horizon, world.truncates)
        start = Start(model, own, jax.random.wrap_key_data(jnp.asarray(job.key)))
        try:
            return jax.device_get(work(self._task, start, source))
        except EpisodeLostError as error:  # this client's simulator is its own
            return Failure(str(error)), None

    def _vmapped(
        self, work: Work[R], model: Model, part: list[Job], width: int
    ) -> list[tuple[R, ClientState | None]]:
        """Some clients in one call, padded to `width` so that one compiled shape serves all."""
        full = part + part[-1:] * (width - len(part))
        numbers = np.asarray([job.client for job in full])
        states = jax.tree.map(lambda *x: np.stack(x), *[self.own_of(job) for job in full])
        params = jax.tree.map(partial(_row, numbers), self._params)
        keys = np.stack([job.key for job in full])
        done = jax.device_get(_do_many(work, self._task, model, states, params, keys))
        return [jax.tree.map(partial(_row, i), done) for i in range(len(part))]


def _do(
    work: Work[Any],
    task: Task,
    model: Model,
    own: ClientState,
    params: PyTree,
    key: UInt32[Any, " w"],
) -> tuple[Any, ClientState | None]:
    assert isinstance(task.world, World)
    source: Source = Traced(task.world, params)
    return work(task, Start(model, own, jax.random.wrap_key_data(key)), source)


_do_one: Callable[..., Any] = jax.jit(_do)
_do_many: Callable[..., Any] = jax.jit(jax.vmap(_do, in_axes=(None, None, None, 0, 0, 0)))


def _row(i: int | np.ndarray, x: np.ndarray) -> np.ndarray | np.generic:
    return x[i]
