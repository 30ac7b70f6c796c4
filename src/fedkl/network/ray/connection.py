"""A connection to Ray: a local one on loopback, or an existing cluster.

Ray reads its environment when it is imported, so it is imported here first and nowhere before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from fedkl.core.errors import MissingPackageError, UserError
from fedkl.core.processes import cores, ended_by_signals, ignore_signals, signals_held
from fedkl.io.files import explain_os_errors
from fedkl.network.ray.nodes import Node, check_versions, nodes
from fedkl.network.ray.probe import Access, ask

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Notices of processes that died go to stdout otherwise, whatever is said of logs.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
LOCAL = {
    # What Ray has for systems on which it starts no clusters: everything listens on loopback.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    # Workers give way to all other programs by default; here they are what the command is for.
    "RAY_worker_niceness": "0",
    # Given here, it is not written to a file in the user's home.
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
_TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""The first wins."""
_TOKEN_FILE = "~/.ray/auth_token"
"""File in the home directory with the token, if no variable gives it."""
_TOKEN = re.compile("[ -~]+")
_RESULT_VARIABLES = ("JAX_", "XLA_", "PJRT_", "OPENBLAS_")
"""Prefixes of the variables that results depend on; workers elsewhere get them, too."""
_OBJECT_STORE_BYTES = 2**28
"""Bytes of shared memory for objects in transit; the rest goes to disk."""
CONNECT_TIMEOUT = 3.0
"""Seconds for a cluster's head to accept a connection."""


class RaySettings(NamedTuple):
    """The Ray to connect to."""

    address: str | None = None
    """HOST:PORT of a cluster's head; None: a local Ray, which ends with the connection."""
    insecure: bool = False
    """Allow a cluster without a token, which any user who reaches it can use."""
    actors: int | None = None
    """Least number of CPUs."""


class Cluster(NamedTuple):
    """The nodes of a connected Ray."""

    nodes: tuple[Node, ...]

    @property
    def cpus(self) -> int:
        """CPUs of all nodes together."""
        return sum(node.cpus for node in self.nodes)


@contextlib.contextmanager
def connected(where: RaySettings) -> Iterator[Cluster]:
    """Connect to Ray inside the block, and leave nothing of this process in it afterwards.

    SIGTERM acts like Ctrl-C inside the block.

    Raises:
        UserError: Ray is not installed, the cluster cannot be joined or has no token, a node has
            other versions, or there are too few CPUs or none.
    """
    if find_spec("ray") is None:
        raise MissingPackageError("a cluster needs Ray", "ray")
    with _started(where) if where.address is None else _joined(where.address, where.insecure):
        found = Cluster(nodes())
        if not found.cpus:
            raise UserError("no node of the Ray cluster has a CPU; start some that have")
        _require_cpus(where, found.cpus)
        if where.address is not None:
            check_versions(found.nodes)
        yield found


@contextlib.contextmanager
def _started(where: RaySettings) -> Iterator[None]:
    _require_cpus(where, len(cores()))
    _prepare(QUIET | LOCAL)
    # Ray's sockets lie in it, and their paths must be short; that of TMPDIR may be long.
    folder = tempfile.mkdtemp(prefix=f"fedkl-ray-{os.getpid()}-", dir="/tmp")
    try:
        with (
            _initialised(
                address="local",
                num_cpus=len(cores()),  # Ray itself takes no notice of affinity
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                # Inside a folder that is closed to other users, because Ray's own is open to all.
                _temp_dir=str(Path(folder) / "ray"),
            ),
            _raylet_watched(),
        ):
            yield
    finally:
        # What still runs for a moment may write a last line meanwhile.
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _joined(address: str, insecure: bool) -> Iterator[None]:
    """Connect to an existing cluster."""
    _require_listener(address)
    _prepare(QUIET | _identity(address, insecure))
    env_vars = {name: x for name, x in os.environ.items() if name.startswith(_RESULT_VARIABLES)}
    env_vars.pop("JAX_COMPILATION_CACHE_DIR", None)  # a folder of this machine
    with _initialised(address=address, runtime_env={"env_vars": env_vars}):
        yield


def _prepare(variables: Mapping[str, str]) -> None:
    """Set Ray's variables, which it reads when it is imported, and import it.

    Raises:
        UserError: it was imported before, with other values.
    """
    differ = any(os.environ.get(name) != value for name, value in variables.items())
    if "ray" in sys.modules and differ:
        raise UserError("this process has imported Ray already, in another way; start a new one")
    os.environ.update(variables)
    import ray  # noqa: F401


@contextlib.contextmanager
def _initialised(address: str, **options: Any) -> Iterator[None]:
    import ray

    with ended_by_signals():
        try:
            try:
                # Ray forks, and an exception in a fork hook is lost. Its own handler would raise,
                # too, and print all stacks.
                theirs = mock.patch("ray._private.utils.set_sigterm_handler", create=True)
                with signals_held(), theirs, warnings.catch_warnings():
                    # JAX warns of forks. Ray's processes execute another program at once.
                    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
            except Exception as error:  # Ray has no class of its own for it
                what = "Ray did not start" if address == "local" else f"{address} cannot be joined"
                raise UserError(f"{what}: {_line(error)}") from error
            yield
        finally:
            ignore_signals()
            ray.shutdown()


@contextlib.contextmanager
def _raylet_watched() -> Iterator[None]:
    """Leave the block with an error when the raylet dies.

    Without it, code that needs Ray's shared memory would hang, or end this process without a
    message. Signals belong to the main thread; in others nothing is watched.

    Raises:
        UserError: it has died.
    """
    from ray._private import worker

    if threading.current_thread() is not threading.main_thread() or not hasattr(os, "pidfd_open"):
        yield
        return
    assert worker._global_node is not None, "Ray was started by this process"
    (raylet,) = worker._global_node.all_processes["raylet"]
    dead = os.pidfd_open(raylet.process.pid)
    over, end = os.pipe()

    def watch() -> None:
        there, _, _ = select.select([dead, over], [], [])
        if over not in there:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)  # like Ctrl-C

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        try:
            yield
        finally:
            # The thread's signal is handled here at the latest, also if the block has ended by
            # itself meanwhile: a pending signal is handled when a system call returns.
            try:
                os.write(end, b"!")
                thread.join()
            finally:
                for descriptor in (dead, over, end):
                    os.close(descriptor)
    except BaseException as error:
        if raylet.process.poll() is None:
            raise
        raise UserError(
            "Ray's raylet has died (killed, or out of memory), and its actors with it; what was "
            "saved can be resumed"
        ) from error


def _require_cpus(where: RaySettings, cpus: int) -> None:
    if where.actors is not None and where.actors > cpus:
        raise UserError(f"{where.actors} actors are more than the {cpus} CPUs that there are")


def _require_listener(address: str) -> None:
    """Check that a process listens at an address; Ray itself would try for more than a minute.

    Raises:
        UserError: none does.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise UserError(f"the address of a Ray cluster must be HOST:PORT, not '{address}'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
    except (OSError, OverflowError, UnicodeError) as error:  # the last: not the name of a host
        raise UserError(f"no Ray cluster answers at {address}: {_line(error)}") from error


def _identity(address: str, insecure: bool) -> dict[str, str]:
    """Return the environment variables with which a cluster admits this process.

    Raises:
        UserError: it does not, or it admits every process.
    """
    stranger = {"RAY_AUTH_MODE": "disabled"}
    match ask(address, stranger):
        case Access.SILENT:
            raise UserError(f"the process at {address} does not answer like a Ray cluster")
        case Access.ADMITTED if insecure:
            return stranger
        case Access.ADMITTED:
            raise UserError(
                f"the Ray cluster at {address} has no token: any user who reaches it can run code "
                "on it; start it with RAY_AUTH_MODE=token, or say --insecure-ray"
            )
    given = {name: x for name in _TOKEN_VARIABLES if (x := os.environ.get(name))}
    if not given and not os.path.isfile(os.path.expanduser(_TOKEN_FILE)):
        raise UserError(
            f"the Ray cluster at {address} wants a token: give it as RAY_AUTH_TOKEN, or a file "
            "that has it as RAY_AUTH_TOKEN_PATH"
        )
    which = next(iter(given), _TOKEN_FILE)
    # Ray would abort the process.
    if not _TOKEN.fullmatch(_token(given)):
        raise UserError(f"the token of {which} must be one line of ASCII characters")
    ours = {"RAY_AUTH_MODE": "token", **given}
    if ask(address, ours) is not Access.ADMITTED:
        raise UserError(f"the Ray cluster at {address} refuses the token of {which}")
    return ours


def _token(given: Mapping[str, str]) -> str:
    """Return the token that Ray will find, without white space around it.

    Raises:
        UserError: its file cannot be read.
    """
    if token := given.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = Path(given.get("RAY_AUTH_TOKEN_PATH", os.path.expanduser(_TOKEN_FILE)))
    with explain_os_errors("read", path):
        return path.read_text(encoding="utf-8", errors="replace").strip()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
