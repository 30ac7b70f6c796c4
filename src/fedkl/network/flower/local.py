"""Clients on the server's own machine, to try a federation out: each is what `fedkl join` is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.network import client_process
from fedkl.network.client_process import Place
from fedkl.network.flower.supernode import SuperNode
from fedkl.network.flower.supervisor import Supervisor
from fedkl.network.sockets import NoAnswerError

LOOKING = 0.5
"""Seconds between two looks at them."""


class LocalClients:
    """Keeps clients of this machine connected, until they are stopped."""

    def __init__(self, nodes: Sequence[SuperNode], tell: Callable[[str], None]) -> None:
        """Args:
        nodes: of the clients, not started yet.
        tell: is told in a line what is wrong with one.
        """
        self._nodes = nodes
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        # What they say of their connection the server says too.
        self._supervisors = [Supervisor(node, lambda line: None) for node in nodes]

    def start(self) -> None:
        """Starts all of them.

        Raises:
            UserError: a folder cannot be used, or a client's process does not come up.
        """
        try:
            for node, supervisor in zip(self._nodes, self._supervisors, strict=True):
                supervisor.start()
                # While Flower starts: the first message finds JAX loaded.
                client_process.ensure(node.place)
        except NoAnswerError as error:
            raise UserError(str(error)) from error
        self._thread.start()

    def stop(self) -> None:
        """Ends all of them, side by side: each takes a second to say goodbye."""
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
        while not self._over.wait(LOOKING):
            for supervisor in list(watched):
                try:
                    supervisor.look()
                except UserError as error:
                    self._tell(str(error))
                    watched.remove(supervisor)


def local_nodes(
    address: str, folder: Path, keys: Path, clients: int, plugins: Sequence[Path]
) -> list[SuperNode]:
    """The nodes of clients on this machine.

    Args:
        address: of the server.
        folder: for all that they keep.
        keys: the folder of keys.
        clients: how many.
        plugins: Python files that each of them loads.
    """
    nodes = []
    for client in range(clients):
        place = Place(folder / "clients", client, plugins=tuple(plugins))
        key = keys / f"client-{client}.key"
        nodes.append(SuperNode(address, place, folder / f"node-{client}", keys / "ca.crt", key))
    return nodes
