"""The simulation engine: every client has a world of its own, and all run in this process."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
from jaxtyping import PyTree

from fedkl.clients.records import ClientState, Model, Task
from fedkl.clients.work import Work
from fedkl.core.processes import cores
from fedkl.engines.base import Failure, Job, KeyData, Report, Rows, parts_of
from fedkl.engines.local import Site, width_of
from fedkl.heterogeneity import Measure

R = TypeVar("R")


class InProcess(Rows):
    """Does clients' work on this machine.

    On a CPU each client that trains is one call of the same compiled function, with a thread for
    each core, so one compiled function serves every K, and a client's update is bit for bit what it
    would be if it were trained alone. On an accelerator the clients of a call are vmapped
    (`federation.clients_at_once`). Clients with a simulator on the host share the threads, and
    take turns with the simulators' processes.
    """

    def __init__(
        self, task: Task, first: ClientState, params: PyTree, at_once: int, pooled: bool = False
    ) -> None:
        """Args:
        task: world, algorithm and settings of local training.
        first: every client's state before its first round.
        params: the world's params of all clients, stacked.
        at_once: how many clients are trained in one vmapped call.
        pooled: whether a client that trains does so in the worlds of all.

        Raises:
            UserError: the world's simulator cannot run here.
        """
        super().__init__(first)
        self._task = task
        self._at_once = at_once
        self._site = Site(task, params, pooled)
        on_cpu = jax.default_backend() == "cpu"
        self._threads = ThreadPoolExecutor(len(cores()) if on_cpu else 1)

    def run(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: KeyData
    ) -> Generator[tuple[int, R | Failure], None, None]:
        """Every client's answer, in the order of the jobs as far as they share a model."""
        width = width_of(work, self._task, self._at_once, jobs)
        parts = parts_of(jobs, model, width)

        def do(part: tuple[Model, list[Job]]) -> list[tuple[R | Failure, ClientState | None]]:
            own, some = part
            return self._site.do(work, own, some, [self.own_of(job) for job in some], width)

        # A measurement's matrix products are large enough to be shared among XLA's own threads: two
        # calls at once can wait for each other there for ever.
        side_by_side = map if isinstance(work, Measure) else self._threads.map
        done = side_by_side(do, parts)
        for (_, part), answers in zip(parts, done, strict=True):
            for job, (answer, after) in zip(part, answers, strict=True):
                # Only an answer that is asked for becomes pending.
                yield job.client, self.propose(job.client, after, answer)

    def report(self) -> Report:
        """Return the number of simulators replaced so far, where there are any."""
        workers = self._site.workers
        return {} if workers is None else {"simulators_replaced": workers.replaced}

    def close(self) -> None:
        """End the simulators, if any, and the threads, which may be waiting for them."""
        self._site.close()
        self._threads.shutdown(cancel_futures=True)
