"""The engine whose clients are simulated by actors of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, TypeVar

from fedkl.clients.records import Model
from fedkl.clients.work import Work
from fedkl.engines import Failure, Job
from fedkl.engines.base import KeyData, Report, Rows, parts_of
from fedkl.engines.local import width_of
from fedkl.network.ray.actor import ActorSetup, JaxSettings, Part, SharedPart, read_plugins
from fedkl.network.ray.actor_pool import ActorPool, Batch, PoolSize
from fedkl.server.setup import trained_at_once
from fedkl.training.provenance import versions

if TYPE_CHECKING:
    from fedkl.config.config import Config

R = TypeVar("R")


class Ray(Rows):
    """An engine that spreads clients' work over actors, and keeps their states here.

    Each actor runs the code of the in-process engines, in the same parts, so the machine of a
    client changes no bit. Clients that share a world are one simulation and cannot be spread: they
    are all in one actor, which has the cores of its machine.
    """

    def __init__(self, config: Config, actors: int, patience: float | None = None) -> None:
        """Open actors on the connected cluster, and wait for the first.

        Args:
            config: the run's.
            actors: number of actors, each with a CPU of its own.
            patience: seconds after which an actor that does not answer counts as hung; None: many
                times what such work has taken so far.

        Raises:
            UserError: a plugin or a simulator does not run there, or no actor opens.
        """
        super().__init__(config.first_states[1])
        self._task = config.task
        self._shared = config.world.is_shared
        self._hosted = config.world.is_hosted
        self._at_once = trained_at_once(config, on_cpu=True)
        plugins, here = read_plugins(config.plugins), JaxSettings.current()
        mapping, taken = config.mapping(), config.pretrained
        setup = ActorSetup(mapping, plugins, here, self._at_once, versions(), taken)
        size = PoolSize(number=1, cpus=actors) if self._shared else PoolSize(number=actors, cpus=1)
        self._actors = ActorPool(setup, size, patience, time.monotonic)

    def run(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: KeyData
    ) -> Generator[tuple[int, R | Failure], None, None]:
        """Yield every client's answer, in the order of the jobs that share a model.

        The first answers are those that an in-process engine yields first.
        """
        batch = Batch(work, self._parts(work, model, jobs, key))
        try:
            for i in range(batch.size):
                while i not in batch.done:
                    self._actors.advance(batch)
                for client, answer, after in batch.done.pop(i):
                    yield client, self.propose(client, after, answer)
        finally:
            batch.cancel()

    def report(self) -> Report:
        """Return the number of actors, and of their simulators, that were replaced so far."""
        simulators: Report = {"simulators_replaced": self._actors.simulators_replaced}
        return {"actors_replaced": self._actors.replaced, **(simulators if self._hosted else {})}

    def close(self) -> None:
        """Kill the actors."""
        self._actors.close()

    def _parts(
        self, work: Work[R], model: Model, jobs: Sequence[Job], key: KeyData
    ) -> list[tuple[Model, Part | SharedPart]]:
        if self._shared:
            return [(model, SharedPart(list(jobs), self.save(), key))]
        width = width_of(work, self._task, self._at_once, jobs)
        return [
            # The model is sent by itself.
            (own, Part([j._replace(model=None) for j in part], [*map(self.own_of, part)], width))
            for own, part in parts_of(jobs, model, width)
        ]
