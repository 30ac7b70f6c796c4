"""The clients that can be reached: which of a SuperLink's nodes is whose."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from fedkl.network.flower.carrier import Answer, Carrier, Parcel
from fedkl.network.keys import normalised

Tell = Callable[[str], None]

LOOKING = 0.5
"""Seconds between two looks at who is there."""
RETURNING = 40.0
"""Seconds in which clients come back to a server that was started again; they try every 30."""
SETTLING = 10.0
"""Seconds without a new client after which those who are there count as all who come."""
INTRODUCTION = 60.0
"""Seconds in which a node without a key says whose it is."""


class Fleet:
    """Who is connected. What it is told of comes from the SuperLink, so all but the constructor may
    raise `carrier.LostError`; `reconnect` helps."""

    def __init__(
        self, connect: Callable[[], Carrier], keys: Mapping[int, bytes] | None, tell: Tell
    ) -> None:
        """Args:
        connect: makes a carrier, and starts all that it needs.
        keys: every client's public key; None: each node is believed to be whose it says.
        tell: is told in a line who comes and who goes.
        """
        self._connect = connect
        self._owners = None if keys is None else {key: client for client, key in keys.items()}
        self._tell = tell
        self._there: set[int] = set()
        self._claims: dict[int, int | None] = {}
        """By node, without keys: whose it says it is; None: nobody's here."""
        self._introductions: dict[str, int] = {}
        self._carrier = connect()

    def reconnect(self) -> None:
        """Makes a new carrier in the place of one that is lost, and waits for those to come back
        who were there."""
        self._carrier.close()
        self._claims, self._introductions = {}, {}
        self._carrier = self._connect()
        self.wait(self._there, len(self._there), RETURNING)

    def push(self, parcels: list[Parcel]) -> list[str]:
        """As `Carrier.push`."""
        return self._carrier.push(parcels)

    def pull(self, ids: Collection[str]) -> list[Answer]:
        """As `Carrier.pull`."""
        return self._carrier.pull(ids)

    def connected(self) -> dict[int, int]:
        """The node of each client that is connected now."""
        nodes = self._carrier.nodes()
        found = self._by_claims(nodes) if self._owners is None else self._by_keys(nodes)
        for client in sorted(self._there ^ found.keys()):
            came = client in found
            self._tell(
                f"client {client} {'is connected' if came else 'is gone'} ({len(found)} connected)"
            )
        self._there = {*found}
        return found

    def wait(self, clients: Collection[int], enough: int, seconds: float) -> dict[int, int]:
        """The nodes of those clients that are connected, as soon as they are enough, or after some
        time.

        Args:
            clients: that count.
            enough: how many of them.
            seconds: how long to wait.
        """
        clients = [*clients]
        end = time.monotonic() + seconds
        while True:
            found = self.connected()
            there = {client: found[client] for client in clients if client in found}
            if len(there) >= enough or time.monotonic() >= end:
                return there
            time.sleep(LOOKING)

    def settle(self, clients: Collection[int]) -> None:
        """Waits for the rest of those clients, as long as there are some who come."""
        there, last = 0, time.monotonic()
        while (now := len(self.connected().keys() & clients)) < len(clients):
            if now > there:
                there, last = now, time.monotonic()
            if time.monotonic() - last >= SETTLING:
                return
            time.sleep(LOOKING)

    def close(self) -> None:
        """Ends the carrier."""
        self._carrier.close()

    def _by_keys(self, nodes: Mapping[int, bytes]) -> dict[int, int]:
        assert self._owners is not None
        keys = {node: normalised(key) for node, key in nodes.items()}
        return {self._owners[key]: node for node, key in keys.items() if key in self._owners}

    def _by_claims(self, nodes: Mapping[int, bytes]) -> dict[int, int]:
        """Whoever came first has the number until it is gone."""
        asked = {*self._claims, *self._introductions.values()}
        if new := [node for node in nodes if node not in asked]:
            ids = self._carrier.push([Parcel(node, b"", INTRODUCTION) for node in new])
            self._introductions |= dict(zip(ids, new, strict=True))
        if self._introductions:
            for answer in self._carrier.pull(self._introductions):
                node = self._introductions.pop(answer.id, None)
                if node is not None and answer.node in (node, None):
                    self._claims[node] = answer.client
        self._claims = {node: c for node, c in self._claims.items() if node in nodes}
        found: dict[int, int] = {}
        for node, client in self._claims.items():
            if client is not None:
                found.setdefault(client, node)
        return found
