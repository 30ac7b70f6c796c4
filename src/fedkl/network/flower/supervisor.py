"""Clients that stay connected: a SuperNode that has died is started again.

One for `fedkl join`, and several on the server's own machine for `fedkl serve --local`.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.network import client_process, status
from fedkl.network.client_process import ClientPlace
from fedkl.network.flower.supernode import SuperNode
from fedkl.network.sockets import NoAnswerError
from fedkl.network.status import JoinStatus

CONNECT_TIMEOUT = 70.0
"""Seconds for the first connection: the key of a killed client counts as connected for most of a
minute."""
NOTIFY_TIMEOUT = 10.0
"""Seconds for a client's last answer to reach the server."""
PAUSE, LONG_PAUSE = 3.0, 30.0
"""Seconds before a restart: at first, and after `CONNECT_TIMEOUT` without a connection."""
POLL_INTERVAL = 0.5
"""Seconds between two polls of the local clients."""


class Supervisor:
    """Supervisor of one SuperNode; `poll` does all of it, and never waits."""

    def __init__(self, node: SuperNode, notify: Callable[[str], None]) -> None:
        """Args:
        node: not started yet.
        notify: is called with a line for the user.
        """
        self._node = node
        self._notify = notify
        self._connected = False
        self._was_connected = False
        self._since = time.monotonic()
        """Time at which it was started or lost."""
        self._again: float | None = None
        """Time at which it will be started again."""
        self._last_reason = ""
        self._refused: float | None = None
        """Time at which it was refused."""
        self._written = -math.inf
        self._changed = time.time()
        """Time of the last change of the connection (`time.time`)."""
        self._over: float | None = None
        """Time at which the server's run was found over."""

    def start(self) -> None:
        """Start the SuperNode.

        Raises:
            UserError: its folder cannot be used.
        """
        self._since = time.monotonic()
        self._node.start()

    def poll(self) -> bool:
        """Restart the SuperNode if it has died; return True if it is connected.

        Raises:
            UserError: it cannot connect for the first time, or the client cannot take part.
        """
        now = time.monotonic()
        if (why := self._node.refusal()) is not None:
            self._refused = self._refused or now
            # The server is to get the reason, too.
            if self._node.answered() or now > self._refused + NOTIFY_TIMEOUT:
                raise UserError(f"cannot take part in what {self._node.address} trains: {why}")
        if self._again is not None:
            if now >= self._again:
                self._again = None
                self._node.start()
        elif self._node.connected():
            self._found()
        else:
            self._lost(now)
            if not self._node.alive():
                late = now > self._since + CONNECT_TIMEOUT
                self._again = now + (LONG_PAUSE if late else PAUSE)
        return self._connected

    def over(self) -> bool:
        """Return True if the server's run is over, and the client has confirmed that."""
        if not self._node.over():
            self._over = None
            return False
        now = time.monotonic()
        if self._over is None:
            self._over = now
            self._notify("the run is over")
        return self._node.answered() or now > self._over + NOTIFY_TIMEOUT

    def write(self, path: Path) -> None:
        """Write the status file, unless it was written just now.

        Raises:
            UserError: the operating system refused.
        """
        now = time.monotonic()
        if now < self._written + status.WRITE_INTERVAL:
            return
        self._written = now
        state = JoinStatus(
            time.time(), os.getpid(), self._changed, self._connected, self._node.address,
            self._over is not None,
        )  # fmt: skip
        status.write_join_status(path, state)

    def _found(self) -> None:
        if not self._connected:
            self._notify(f"connected{' again' * self._was_connected} to {self._node.address}")
            self._changed = time.time()
        self._connected, self._was_connected, self._last_reason = True, True, ""

    def _lost(self, now: float) -> None:
        """Handle a SuperNode that is not connected, yet or any more."""
        trouble = self._node.trouble()
        why = trouble.sentence if trouble else "the reason is not known yet"
        if self._connected:
            self._connected, self._since, self._last_reason = False, now, why
            self._changed = time.time()
            self._notify(f"lost the connection to {self._node.address}: {why}; trying again")
        if trouble is None:
            return  # it starts, which takes its time on a busy machine
        if not self._was_connected:
            if not trouble.passing:
                raise UserError(self._sentence(why))
            if now > self._since + CONNECT_TIMEOUT:
                raise UserError(self._sentence(f"{why}, for {CONNECT_TIMEOUT:g} s"))
        if why != self._last_reason:
            self._last_reason = why
            self._notify(f"{why}; trying again")

    def _sentence(self, why: str) -> str:
        return f"cannot join {self._node.address}: {why} (see {self._node.log})"


class LocalClients:
    """Clients on the server's machine, which stay connected until they are stopped."""

    def __init__(self, nodes: Sequence[SuperNode], notify: Callable[[str], None]) -> None:
        """Args:
        nodes: of the clients, not started yet.
        notify: is called with a line about a client's problem.
        """
        self._nodes = nodes
        self._notify = notify
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        # The server reports their connections itself.
        self._supervisors = [Supervisor(node, lambda line: None) for node in nodes]

    def start(self) -> None:
        """Start all of them.

        Raises:
            UserError: a folder cannot be used, or a client's process does not come up.
        """
        try:
            for node, supervisor in zip(self._nodes, self._supervisors, strict=True):
                supervisor.start()
                # While Flower starts: the first message finds JAX loaded.
                client_process.ensure_running(node.place)
        except NoAnswerError as error:
            raise UserError(str(error)) from error
        self._thread.start()

    def stop(self) -> None:
        """Stop all of them in parallel: each takes a second to sign off."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        ending = [threading.Thread(target=node.stop) for node in self._nodes]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def _watch(self) -> None:
        watched = list(self._supervisors)
        while not self._over.wait(POLL_INTERVAL):
            for supervisor in list(watched):
                try:
                    supervisor.poll()
                except UserError as error:
                    self._notify(str(error))
                    watched.remove(supervisor)


def local_nodes(
    address: str, folder: Path, keys: Path, clients: int, plugins: Sequence[Path]
) -> list[SuperNode]:
    """Return the SuperNodes of clients on this machine.

    Args:
        address: of the server.
        folder: for their states and logs.
        keys: folder of keys.
        clients: number of clients.
        plugins: Python files that each of them loads.
    """
    nodes = []
    for client in range(clients):
        place = ClientPlace(folder / "clients", client, plugins=tuple(plugins))
        key = keys / f"client-{client}.key"
        nodes.append(SuperNode(address, place, folder / f"node-{client}", keys / "ca.crt", key))
    return nodes
