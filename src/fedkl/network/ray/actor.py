"""Code that runs in an actor: some clients' worlds, their work, and the plugins they need.

Nothing happens in a constructor: an error there reaches the driver as an actor that died.
Plugins are sent as text, because other machines do not have the user's files; an actor writes them to its
cache folder, where the processes of its simulators find them too.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedkl.clients.records import ClientState, Model
from fedkl.clients.work import Work
from fedkl.config.config import from_mapping
from fedkl.core.errors import UserError
from fedkl.core.plugins import load_plugin, module_of
from fedkl.core.processes import take_cores
from fedkl.engines import InSharedWorld, Job
from fedkl.engines.base import Words
from fedkl.engines.local import Site
from fedkl.io import compilation
from fedkl.io.files import cache_folder, explain_os_errors, write_atomically
from fedkl.network.ray.nodes import require_versions
from fedkl.server.setup import first_states, params_of, task_of
from fedkl.worlds.base import SharedWorld


class Plugin(NamedTuple):
    """A plugin as it is sent."""

    name: str
    """Of its file."""
    text: bytes
    module: str
    """Its name where it was read: what is pickled on one side is found on the other."""


def read_plugins(paths: Iterable[str]) -> tuple[Plugin, ...]:
    """The plugins of a config.

    Raises:
        UserError: a file cannot be read.
    """
    found = []
    for path in map(Path, paths):
        with explain_os_errors("read", path):
            found.append(Plugin(path.name, path.read_bytes(), module_of(path)))
    return tuple(found)


def install_plugins(plugins: Sequence[Plugin]) -> list[str]:
    """Runs plugins on a worker, and returns where they are there: a config's `plugins`.

    Raises:
        UserError: one does not run there.
    """
    paths = []
    for plugin in plugins:
        path = _write_plugin(plugin)
        try:
            load_plugin(path, plugin.module)
        except Exception as error:  # it is somebody's code
            raise UserError(
                f"the plugin {plugin.name} fails on the worker {platform.node()}: "
                f"{type(error).__name__}: {error}"
            ) from error
        paths.append(str(path))
    return paths


def _write_plugin(plugin: Plugin) -> Path:
    digest = hashlib.sha256(plugin.module.encode() + plugin.text).hexdigest()
    path = cache_folder() / "plugins" / digest[:16] / plugin.name
    with explain_os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != plugin.text:
            write_atomically(path, plugin.text)
    return path


_LAPACK = "OPENBLAS_NUM_THREADS"


class JaxSettings(NamedTuple):
    """What bits depend on beside the config; the driver's, to be had by every actor."""

    lapack: str
    """The threads of its linear algebra (`OPENBLAS_NUM_THREADS`)."""
    x64: bool
    precision: str | None
    """Of matrix products."""

    @classmethod
    def current(cls) -> JaxSettings:
        """Those of this process."""
        config: Any = jax.config  # a checker does not see what it has
        precision = config.jax_default_matmul_precision
        return cls(os.environ[_LAPACK], config.jax_enable_x64, precision)

    def apply(self) -> None:
        """Makes them those of this process, which has computed nothing yet."""
        os.environ[_LAPACK] = self.lapack
        # Ray hides accelerators from whoever has not asked for one.
        for name, value in (
            ("jax_platforms", "cpu"),
            ("jax_enable_x64", self.x64),
            ("jax_default_matmul_precision", self.precision),
        ):
            jax.config.update(name, value)  # type: ignore[no-untyped-call]  # JAX's own


class ActorSetup(NamedTuple):
    """What an actor needs to know before it can work."""

    mapping: dict[str, Any]
    """The config, as TOML can hold it."""
    plugins: tuple[Plugin, ...]
    jax_settings: JaxSettings
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


class SharedPart(NamedTuple):
    """Clients who share a world: all of them are one piece."""

    jobs: list[Job]
    states: Mapping[int, ClientState]
    """Of those who have one of their own."""
    key: Words

    @property
    def width(self) -> int:
        """How many there are."""
        return len(self.jobs)


class ClientAnswer(NamedTuple):
    """What a client says."""

    client: int
    answer: Any
    after: ClientState | None
    """What it would keep; None: what it has."""


class CallResult(NamedTuple):
    """What an actor made of a call."""

    answers: list[list[ClientAnswer]]
    """Of each part."""
    seconds: float
    simulators_replaced: int
    """By this actor, in its life."""


class ClientsActor:
    """Does clients' work in a process of its own, somewhere on the cluster."""

    def open(self, setup: ActorSetup, cpus: int) -> None:
        """Makes the worlds of all clients.

        Args:
            opening: what there is to know.
            cpus: how many the actor has.

        Raises:
            UserError: this node has other versions, or a plugin or a simulator does not run here.
        """
        require_versions(setup.versions)
        setup.jax_settings.apply()
        take_cores(cpus)
        compilation.enable_cache()
        plugins = install_plugins(setup.plugins)
        config = from_mapping(setup.mapping | {"plugins": plugins})
        task = task_of(config)
        self._site: Site | InSharedWorld
        if isinstance(config.world, SharedWorld):
            self._site = InSharedWorld(task, first_states(config)[1], setup.at_once)
        else:
            self._site = Site(task, params_of(config), config.federation.pools_data)

    def run(self, work: Work[Any], model: Model, parts: Sequence[Part | SharedPart]) -> CallResult:
        """Does some parts of a piece of work."""
        start = time.perf_counter()
        answers = [self._answers(work, model, part) for part in parts]
        return CallResult(answers, time.perf_counter() - start, self._replaced())

    def _answers(
        self, work: Work[Any], model: Model, part: Part | SharedPart
    ) -> list[ClientAnswer]:
        if isinstance(part, SharedPart):
            assert isinstance(self._site, InSharedWorld)
            self._site.restore(part.states)
            answers = list(self._site.run(work, model, part.jobs, part.key))
            pending = self._site.pending
            return [ClientAnswer(client, answer, pending.get(client)) for client, answer in answers]
        assert isinstance(self._site, Site)
        done = self._site.do(work, model, *part)
        return [ClientAnswer(job.client, *each) for job, each in zip(part.jobs, done, strict=True)]

    def _replaced(self) -> int:
        if isinstance(self._site, InSharedWorld):
            return self._site.report()["simulators_replaced"]
        return 0 if self._site.workers is None else self._site.workers.replaced
