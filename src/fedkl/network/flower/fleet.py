"""The clients that can be reached: which of a SuperLink's nodes is whose."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from fedkl.network.flower.relay_client import NodeAnswer, NodeMessage, Transport
from fedkl.network.keys import normalised
from fedkl.network.messages import read_reply
from fedkl.network.wire import MessageError, one_line

Notify = Callable[[str], None]

POLL_INTERVAL = 0.5
"""Seconds between two looks at who is there."""
RECONNECT_TIMEOUT = 40.0
"""Seconds in which clients come back to a server that was started again; they try every 30."""
SETTLE_TIME = 10.0
"""Seconds without a new client after which those who are there count as all who come."""
GREETING_RETRY = 10.0
"""Seconds after which a node is greeted again whose answer was lost."""
LARGEST = 1 << 16
"""Bytes of what a node says to a greeting."""
MAX_COMPLAINTS = 10
"""How often it is said of one client that it cannot take part, and why."""
DUPLICATE_TIMEOUT = 80.0
"""Seconds after which a node is refused whose number another one has. One without a key that was
killed counts as connected for most of a minute."""
FAREWELL_TIMEOUT = 10.0
"""Seconds that clients have to hear that the run is over."""


class SentGreeting(NamedTuple):
    """What a node is told that has connected."""

    parcel: NodeMessage
    nonce: str
    """That its answer must repeat."""


@runtime_checkable
class Greet(Protocol):
    """Makes what a node is told."""

    def __call__(
        self, node: int, client: int | None, refusal: str = "", over: bool = False
    ) -> SentGreeting:
        """Args:
        node: which.
        client: whose key it has; None: there are no keys.
        refusal: why it cannot take part.
        over: whether the run is over.
        """


class NodeStatus(NamedTuple):
    """What is known of a node that was greeted."""

    client: int | None
    """Whose it says it is."""
    welcome: bool
    reason: str
    """Why not; empty also if nobody knows yet."""
    since: float


class Fleet:
    """Who is connected. What it is told of comes from the SuperLink, so all but the constructor may
    raise `carrier.LostError`; `reconnect` helps."""

    def __init__(
        self,
        connect: Callable[[], Transport],
        keys: Mapping[int, bytes] | None,
        notify: Notify,
        greet: Greet,
    ) -> None:
        """Args:
        connect: makes a carrier, and starts all that it needs.
        keys: every client's public key, and nobody else is told anything; None: each node is
            believed to be whose it says.
        tell: is told in a line who comes and who goes.
        greet: makes what a new node is told.
        """
        self._greet = greet
        self._connect = connect
        self._owners = None if keys is None else {key: client for client, key in keys.items()}
        self._notify = notify
        self._there: set[int] = set()
        self._statuses: dict[int, NodeStatus] = {}
        """By node."""
        self._welcome: set[int] = set()
        """Clients with keys that can take part: one that trains for a server that was lost is too
        busy to say so again."""
        self._complaints: Counter[str] = Counter()
        self._greetings: dict[str, SentGreeting] = {}
        """What was not answered yet."""
        self.seen: Callable[[Collection[int]], None] = lambda clients: None
        """Is told who is connected, whenever somebody looks."""
        self._transport = connect()

    def rekey(self, keys: Mapping[int, bytes]) -> list[int]:
        """From now on clients have these keys; a node that has another is nobody's.

        Returns:
            Whose keys are others, or new, or gone.
        """
        before = {client: key for key, client in (self._owners or {}).items()}
        everybody = before.keys() | keys.keys()
        changed = sorted(c for c in everybody if before.get(c) != keys.get(c))
        self._welcome -= {*changed}
        self._owners = {key: client for client, key in keys.items()}
        return changed

    def reconnect(self) -> None:
        """Makes a new carrier in the place of one that is lost, and waits for those to come back
        who were there."""
        self._transport.close()
        self._statuses, self._greetings = {}, {}
        self._transport = self._connect()
        self.wait(self._there, len(self._there), RECONNECT_TIMEOUT)

    def push(self, parcels: list[NodeMessage]) -> list[str]:
        """As `Transport.push`."""
        return self._transport.push(parcels)

    def pull(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        """As `Transport.pull`."""
        return self._transport.pull(ids)

    def connected(self) -> dict[int, int]:
        """The node of each client that is connected now."""
        nodes = self._transport.nodes()
        self._greet_new(nodes)
        found = self._by_claims() if self._owners is None else self._by_keys(nodes)
        for client in sorted(self._there ^ found.keys()):
            came = client in found
            self._notify(
                f"client {client} {'is connected' if came else 'is gone'} ({len(found)} connected)"
            )
        self._there = {*found}
        self.seen(self._there)
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
            time.sleep(POLL_INTERVAL)

    def settle(self, clients: Collection[int]) -> None:
        """Waits for the rest of those clients, as long as there are some who come."""
        there, last = 0, time.monotonic()
        while (now := len(self.connected().keys() & clients)) < len(clients):
            if now > there:
                there, last = now, time.monotonic()
            if time.monotonic() - last >= SETTLE_TIME:
                return
            time.sleep(POLL_INTERVAL)

    def farewell(self) -> int:
        """Tells all who are connected that the run is over.

        Returns:
            How many have heard it.
        """
        found = self.connected().items()
        keys = self._owners is not None
        said = [self._greet(node, client if keys else None, over=True) for client, node in found]
        waiting = set(self._transport.push([greeted.parcel for greeted in said])) if said else set()
        end = time.monotonic() + FAREWELL_TIMEOUT
        while waiting and time.monotonic() < end:
            waiting -= {
                answer.id for answer in self._transport.pull(dict.fromkeys(waiting, LARGEST))
            }
            if waiting:
                time.sleep(0.05)
        return len(said) - len(waiting)

    def close(self) -> None:
        """Ends the carrier."""
        self._transport.close()

    def _greet_new(self, nodes: Mapping[int, bytes]) -> None:
        """Greets who is new, and hears who has answered."""
        now = time.monotonic()
        self._statuses = {node: status for node, status in self._statuses.items() if node in nodes}
        lost = {
            n
            for n, status in self._statuses.items()
            if status.client is None and now > status.since + GREETING_RETRY
        }
        waiting = {greeted.parcel.node for greeted in self._greetings.values()}
        known = ({*self._statuses} - lost) | waiting
        whose = self._owners_by_node(nodes)
        if new := [self._greet(node, whose[node]) for node in whose if node not in known]:
            self._send(new)
        if not self._greetings:
            return
        for answer in self._transport.pull(dict.fromkeys(self._greetings, LARGEST)):
            greeted = self._greetings.pop(answer.id, None)
            if greeted is None or answer.node not in (greeted.parcel.node, None):
                continue
            node = greeted.parcel.node
            status, before = _statuses(answer, greeted.nonce, now), self._statuses.get(node)
            self._statuses[node] = status
            if status.reason and (before is None or before.reason != status.reason):
                self._warn_refused(whose.get(node), status)

    def _warn_refused(self, client: int | None, status: NodeStatus) -> None:
        """Says why somebody cannot take part, but not for ever: it may find new reasons."""
        if client is None:
            client = status.client
        who = "a node" if client is None else f"client {client}"
        self._complaints[who] += 1
        if self._complaints[who] < MAX_COMPLAINTS:
            self._notify(f"{who} cannot take part: {status.reason}")
        elif self._complaints[who] == MAX_COMPLAINTS:
            self._notify(f"{who} cannot take part: {status.reason}; no more is said of it")

    def _send(self, greetings: list[SentGreeting]) -> None:
        ids = self._transport.push([greeted.parcel for greeted in greetings])
        self._greetings |= dict(zip(ids, greetings, strict=True))

    def _owners_by_node(self, nodes: Mapping[int, bytes]) -> Mapping[int, int | None]:
        """The client of each node, by its key; without keys nobody knows. A node whose key is
        nobody's is left out."""
        if self._owners is None:
            return dict.fromkeys(nodes)
        keys = {node: normalised(key) for node, key in nodes.items()}
        return {node: self._owners[key] for node, key in keys.items() if key in self._owners}

    def _by_keys(self, nodes: Mapping[int, bytes]) -> dict[int, int]:
        whose = self._owners_by_node(nodes)
        found = {client: node for node, client in whose.items() if client is not None}
        for client, node in found.items():
            if (status := self._statuses.get(node)) is not None:
                (self._welcome.add if status.welcome else self._welcome.discard)(client)
        return {client: node for client, node in found.items() if client in self._welcome}

    def _by_claims(self) -> dict[int, int]:
        """Whoever came first has the number until it is gone."""
        found: dict[int, int] = {}
        for node, status in self._statuses.items():
            if status.client is None or not status.welcome:
                continue
            if found.setdefault(status.client, node) == node:
                continue
            if time.monotonic() > status.since + DUPLICATE_TIMEOUT:
                reason = f"client {status.client} is connected already, from elsewhere"
                self._statuses[node] = status._replace(welcome=False, reason=reason)
                self._send([self._greet(node, None, reason)])
        return found


def _statuses(answer: NodeAnswer, nonce: str, now: float) -> NodeStatus:
    """What a node's answer to a greeting says."""
    if isinstance(answer.content, str):
        return NodeStatus(None, False, one_line(answer.content), now)
    try:
        reply = read_reply(answer.content)
    except MessageError as error:
        return NodeStatus(None, False, str(error), now)
    if reply.nonce != nonce:
        return NodeStatus(None, False, "it answered for another request", now)
    return NodeStatus(answer.client, not reply.failure, reply.failure, now)
