"""What runs in an actor: some clients' worlds, and their work there.

Nothing happens in a constructor: what goes wrong there reaches the driver as an actor that died.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from fedkl.clients.records import ClientState, Model
from fedkl.clients.work import Work
from fedkl.config.config import from_mapping
from fedkl.core.processes import take_cores
from fedkl.engines import InSharedWorld, Job
from fedkl.engines.base import Words
from fedkl.engines.local import Site
from fedkl.io import compilation
from fedkl.network.ray.nodes import require_versions
from fedkl.network.ray.plugins import Plugin, install_plugins
from fedkl.worlds.base import SharedWorld

_LAPACK = "OPENBLAS_NUM_THREADS"


class Surroundings(NamedTuple):
    """What bits depend on beside the config; the driver's, to be had by every actor."""

    lapack: str
    """The threads of its linear algebra (`OPENBLAS_NUM_THREADS`)."""
    x64: bool
    precision: str | None
    """Of matrix products."""

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        config: Any = jax.config  # a checker does not see what it has
        precision = config.jax_default_matmul_precision
        return cls(os.environ[_LAPACK], config.jax_enable_x64, precision)

    def take(self) -> None:
        """Makes them those of this process, which has computed nothing yet."""
        os.environ[_LAPACK] = self.lapack
        # Ray hides accelerators from whoever has not asked for one.
        for name, value in (
            ("jax_platforms", "cpu"),
            ("jax_enable_x64", self.x64),
            ("jax_default_matmul_precision", self.precision),
        ):
            jax.config.update(name, value)  # type: ignore[no-untyped-call]  # JAX's own


class Opening(NamedTuple):
    """What an actor needs to know before it can work."""

    mapping: dict[str, Any]
    """The config, as TOML can hold it."""
    plugins: tuple[Plugin, ...]
    surroundings: Surroundings
    at_once: int
    """How many clients are trained in one vmapped call."""
    versions: dict[str, str]
    """The driver's."""


class Part(NamedTuple):
    """Clients with worlds of their own, who go into one call."""

    jobs: list[Job]
    states: list[ClientState]
    width: int
    """As `engines.site.width_of` says."""


class Together(NamedTuple):
    """Clients who share a world: all of them are one piece."""

    jobs: list[Job]
    states: Mapping[int, ClientState]
    """Of those who have one of their own."""
    key: Words

    @property
    def width(self) -> int:
        """How many there are."""
        return len(self.jobs)


class Answer(NamedTuple):
    """What a client says."""

    client: int
    answer: Any
    after: ClientState | None
    """What it would keep; None: what it has."""


class Done(NamedTuple):
    """What an actor made of a call."""

    answers: list[list[Answer]]
    """Of each part."""
    seconds: float
    simulators_replaced: int
    """By this actor, in its life."""


class Clients:
    """Does clients' work in a process of its own, somewhere on the cluster."""

    def open(self, opening: Opening, cpus: int) -> None:
        """Makes the worlds of all clients.

        Args:
            opening: what there is to know.
            cpus: how many the actor has.

        Raises:
            UserError: this node has other versions, or a plugin or a simulator does not run here.
        """
        require_versions(opening.versions)
        opening.surroundings.take()
        take_cores(cpus)
        compilation.enable_cache()
        plugins = install_plugins(opening.plugins)
        config = from_mapping(opening.mapping | {"plugins": plugins})
        self._site: Site | InSharedWorld
        if isinstance(config.world, SharedWorld):
            self._site = InSharedWorld(config.task, config.first_states[1], opening.at_once)
        else:
            self._site = Site(config.task, config.client_params, config.federation.pools_data)

    def run(self, work: Work[Any], model: Model, parts: Sequence[Part | Together]) -> Done:
        """Does some parts of a piece of work."""
        start = time.perf_counter()
        answers = [self._answers(work, model, part) for part in parts]
        return Done(answers, time.perf_counter() - start, self._replaced())

    def _answers(self, work: Work[Any], model: Model, part: Part | Together) -> list[Answer]:
        if isinstance(part, Together):
            assert isinstance(self._site, InSharedWorld)
            self._site.restore(part.states)
            answers = list(self._site.run(work, model, part.jobs, part.key))
            pending = self._site.pending
            return [Answer(client, answer, pending.get(client)) for client, answer in answers]
        assert isinstance(self._site, Site)
        done = self._site.do(work, model, *part)
        return [Answer(job.client, *each) for job, each in zip(part.jobs, done, strict=True)]

    def _replaced(self) -> int:
        if isinstance(self._site, InSharedWorld):
            return self._site.report()["simulators_replaced"]
        return 0 if self._site.workers is None else self._site.workers.replaced
