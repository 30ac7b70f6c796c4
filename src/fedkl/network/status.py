"""The status of a federation: a file that the server, or a client, writes while it runs.

`fedkl status` reads it. Nothing of JAX or Flower is imported here.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedkl.core.errors import UserError
from fedkl.io import files, strict_json

R = TypeVar("R")

FOLDER = "flower"
"""Folder of a run with logs, the status file, and the states of clients on this machine."""
FILE = "status.json"
"""Status file: the server's in `RUN/flower`, a client's in the folder of its state."""
WRITE_INTERVAL = 2.0
"""Seconds between two writes; the last is always written."""
_LARGEST = 2**27
"""Bytes; those of 100,000 clients are a third of it."""


@dataclasses.dataclass(slots=True)
class ClientStatus:
    """The status of a client since the server was started."""

    client: int
    connected: bool = False
    last_seen: float | None = None
    """Time of its last connection or answer (`time.time`)."""
    latency: float | None = None
    """Seconds from its last answered request to the answer, with the work."""
    answers: int = 0
    failures: int = 0
    retries: int = 0
    reason: str = ""
    """Reason of its last failure."""


class FleetStatus:
    """The status of all clients of a server, and the writer of its file.

    Attributes:
        expires: end of the server's certificate (`time.time`); None: it has none.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Args:
        path: of the file; None: nothing is written.
        """
        self.expires: float | None = None
        self._path = path
        self._since = time.time()
        self._written = -math.inf
        self._clients: dict[int, ClientStatus] = {}
        self._round = 0

    def connected(self, clients: Collection[int]) -> None:
        """Record the clients that are connected now."""
        now = time.time()
        for client in clients:
            self._of(client).last_seen = now
        for client, status in self._clients.items():
            status.connected = client in clients
        self.write()

    def asked(self, round: int) -> None:
        """Record the round of the requests that follow."""
        self._round = round

    def answered(self, client: int, seconds: float) -> None:
        """Record a valid answer and its latency."""
        status = self._of(client)
        status.answers += 1
        status.latency, status.last_seen = seconds, time.time()

    def failed(self, client: int, reason: str) -> None:
        """Record an answer that is not valid, or that did not come."""
        status = self._of(client)
        status.failures += 1
        status.reason = reason

    def retried(self, client: int) -> None:
        """Record a second request to a client in the same round."""
        self._of(client).retries += 1

    def write(self, over: bool = False) -> None:
        """Write the file, unless it was written just now.

        Args:
            over: the run is not served any more.

        Raises:
            UserError: the operating system refused.
        """
        now = time.monotonic()
        if self._path is None or (now < self._written + WRITE_INTERVAL and not over):
            return
        self._written = now
        clients = sorted(self._clients.values(), key=lambda status: status.client)
        table = {
            "time": time.time(),
            "process": None if over else os.getpid(),
            "since": self._since,
            "round": self._round,
            "expires": self.expires,
            "clients": [
                dataclasses.asdict(one) | {"connected": one.connected and not over}
                for one in clients
            ],
        }
        files.write_atomically(self._path, strict_json.encode(table), 0o600)

    def _of(self, client: int) -> ClientStatus:
        return self._clients.setdefault(client, ClientStatus(client))


@dataclasses.dataclass(frozen=True)
class ServeStatus:
    """The contents of a server's file."""

    time: float
    process: int | None
    since: float
    round: int
    expires: float | None
    clients: list[ClientStatus]


@dataclasses.dataclass(frozen=True)
class JoinStatus:
    """The contents of a client's file."""

    time: float
    process: int | None
    since: float
    """Start of the current state of the connection."""
    connected: bool
    address: str
    over: bool
    """True if the server has said that its run is over."""


def write_join_status(path: Path, joined: JoinStatus) -> None:
    """Write a client's file.

    Raises:
        UserError: the operating system refused.
    """
    files.write_atomically(path, strict_json.encode(dataclasses.asdict(joined)), 0o600)


def read_serve_status(path: Path) -> ServeStatus | None:
    """Read a server's file; None if there is none.

    Raises:
        UserError: it cannot be read, or is damaged.
    """

    def served(table: dict[str, Any]) -> ServeStatus:
        clients = [ClientStatus(**_fields(ClientStatus, row)) for row in table.pop("clients")]
        return ServeStatus(**_fields(ServeStatus, table | {"clients": clients}))

    return _read(path, served)


def read_join_status(path: Path) -> JoinStatus | None:
    """Read a client's file; None if there is none.

    Raises:
        UserError: it cannot be read, or is damaged.
    """
    return _read(path, lambda table: JoinStatus(**_fields(JoinStatus, table)))


def runs(process: int | None) -> bool:
    """Return True if a process with this PID runs."""
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def _read(path: Path, make: Callable[[dict[str, Any]], R]) -> R | None:
    if (data := files.read_if_there(path, _LARGEST)) is None:
        return None
    try:
        return make(strict_json.decode(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{path} is damaged; it is written again when the run is served") from error


_KINDS: dict[str, tuple[type, ...]] = {
    "float": (float, int),
    "int": (int,),
    "bool": (bool,),
    "str": (str,),
    "list[ClientStatus]": (list,),
}


def _fields(kind: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """Check that a table has the fields of a class, with their types, and return it.

    Raises:
        ValueError: it has not.
    """
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    if not isinstance(table, dict) or table.keys() != fields.keys():
        raise ValueError("it has other entries")
    for name, hint in fields.items():
        value, bare = table[name], hint.removesuffix(" | None")
        if value is None and bare != hint:
            continue
        if type(value) not in _KINDS[bare]:
            raise ValueError(f"{name} is of another type")
        if type(value) in (int, float) and not 0 <= value < 2**62:
            raise ValueError(f"{name} is no such number")
    return dict(table)
