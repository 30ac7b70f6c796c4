"""Code that runs in an actor: some clients' worlds, their work, and the plugins they need.

Nothing happens in a constructor: an error there reaches the driver as an actor that died. Plugins
are sent as text, because other machines do not have the user's files; an actor writes them to its
cache folder, where the processes of its simulators find them too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedkl.clients.records import ClientState, Model
from fedkl.clients.work import Work
from fedkl.config.config import from_mapping
from fedkl.config.pretrained import Pretrained
from fedkl.core.own_code import OwnCodeError, explained, own_code_error
from fedkl.core.plugins import load_plugin, module_of
from fedkl.core.processes import take_cores
from fedkl.engines import InSharedWorld, Job
from fedkl.engines.base import KeyData
from fedkl.engines.local import Site
from fedkl.io import compilation
from fedkl.io.files import explain_os_errors, write_atomically
from fedkl.io.user_folders import cache_folder
from fedkl.network.ray.nodes import require_versions

_LAPACK = "OPENBLAS_NUM_THREADS"


class Plugin(NamedTuple):
    """A plugin as it is sent."""

    name: str
    """Name of its file."""
    text: bytes
    module: str
    """Name of its module on the driver: an object that is pickled there is found here."""
    path: str
    """Of the file on the driver, which its author knows."""


_copies: dict[str, str] = {}
"""Plugins of this process: the path of the file here, and on the driver."""


def read_plugins(paths: Iterable[str]) -> tuple[Plugin, ...]:
    """Read the plugins of a config.

    Raises:
        UserError: a file cannot be read.
    """
    found = []
    for path in map(Path, paths):
        with explain_os_errors("read", path):
            found.append(Plugin(path.name, path.read_bytes(), module_of(path), str(path)))
    return tuple(found)


def install_plugins(plugins: Sequence[Plugin]) -> list[str]:
    """Run plugins on a worker, and return their paths there: a config's `plugins`.

    Raises:
        UserError: one fails there.
    """
    paths = []
    for plugin in plugins:
        path = _write_plugin(plugin)
        _copies[str(path)] = plugin.path
        try:
            load_plugin(path, plugin.module)
        except Exception as error:  # it is user code
            raise explained(
                f"the plugin {plugin.name} fails on the worker {platform.node()}: "
                f"{type(error).__name__}: {error}",
                error,
            ) from error
        paths.append(str(path))
    return paths


@contextlib.contextmanager
def explain_own_code() -> Iterator[None]:
    """Raise an error in a plugin as one that names the file on the driver, and can be sent there.

    Raises:
        OwnCodeError: in the place of an error that came by the user's own code.
    """
    try:
        yield
    except Exception as error:
        if (told := own_code_error(error)) is None:
            raise
        texts = [str(told), told.trace]
        for here, there in _copies.items():
            texts = [text.replace(here, there) for text in texts]
        raise OwnCodeError(*texts) from None


def _write_plugin(plugin: Plugin) -> Path:
    digest = hashlib.sha256(plugin.module.encode() + plugin.text).hexdigest()
    path = cache_folder() / "plugins" / digest[:16] / plugin.name
    with explain_os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != plugin.text:
            write_atomically(path, plugin.text)
    return path


class JaxSettings(NamedTuple):
    """Settings of a process that bits depend on; every actor takes the driver's."""

    lapack: str
    """Threads of linear algebra (`OPENBLAS_NUM_THREADS`)."""
    x64: bool
    precision: str | None
    """Precision of matrix products."""

    @classmethod
    def current(cls) -> JaxSettings:
        """Return the settings of this process."""
        config: Any = jax.config  # a checker does not see what it has
        precision = config.jax_default_matmul_precision
        return cls(os.environ[_LAPACK], config.jax_enable_x64, precision)

    def apply(self) -> None:
        """Apply the settings to this process, which has computed nothing yet."""
        os.environ[_LAPACK] = self.lapack
        # Ray hides accelerators from an actor that has not asked for one.
        for name, value in (
            ("jax_platforms", "cpu"),
            ("jax_enable_x64", self.x64),
            ("jax_default_matmul_precision", self.precision),
        ):
            jax.config.update(name, value)  # type: ignore[no-untyped-call]  # JAX's own


class ActorSetup(NamedTuple):
    """All that an actor needs before it can work."""

    mapping: dict[str, Any]
    """The config, as TOML can hold it."""
    plugins: tuple[Plugin, ...]
    jax_settings: JaxSettings
    at_once: int
    """Number of clients that are trained in one vmapped call."""
    versions: dict[str, str]
    """Versions of the driver's packages."""
    pretrained: Pretrained | None = None
    """The policy that the run starts from."""


class Part(NamedTuple):
    """Clients with worlds of their own, which are trained in one call."""

    jobs: list[Job]
    states: list[ClientState]
    width: int
    """As `engines.local.width_of` returns it."""


class SharedPart(NamedTuple):
    """All clients of a shared world, which cannot be split."""

    jobs: list[Job]
    states: Mapping[int, ClientState]
    """States of the clients that have one."""
    key: KeyData

    @property
    def width(self) -> int:
        """Number of clients."""
        return len(self.jobs)


class ClientAnswer(NamedTuple):
    """A client's answer."""

    client: int
    answer: Any
    after: ClientState | None
    """New state of the client; None: unchanged."""


class CallResult(NamedTuple):
    """The result of a call of an actor."""

    answers: list[list[ClientAnswer]]
    """Answers of each part."""
    seconds: float
    simulators_replaced: int
    """Number of simulators that this actor has replaced."""


class ClientsActor:
    """An actor that does clients' work in a process on the cluster."""

    @explain_own_code()
    def open(self, setup: ActorSetup, cpus: int) -> None:
        """Make the worlds of all clients.

        Args:
            setup: the driver's.
            cpus: of the actor.

        Raises:
            UserError: this node has other versions, or a plugin or a simulator does not run here.
        """
        require_versions(setup.versions)
        setup.jax_settings.apply()
        take_cores(cpus)
        compilation.enable_cache()
        plugins = install_plugins(setup.plugins)
        config = from_mapping(setup.mapping | {"plugins": plugins}, setup.pretrained)
        task = config.task
        self._site: Site | InSharedWorld
        if config.world.is_shared:
            self._site = InSharedWorld(task, config.first_states[1], setup.at_once)
        else:
            self._site = Site(config.task, config.client_params, config.federation.pools_data)

    @explain_own_code()
    def run(self, work: Work[Any], model: Model, parts: Sequence[Part | SharedPart]) -> CallResult:
        """Do some parts of a piece of work."""
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
