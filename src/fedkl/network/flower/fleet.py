"""The clients that can be reached, and the SuperLink's node of each."""

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
"""Seconds between two polls for connected nodes."""
RECONNECT_TIMEOUT = 40.0
"""Seconds for clients to reconnect to a restarted server; they try every 30."""
SETTLE_TIME = 10.0
"""Seconds without a new client after which no more are awaited."""
GREETING_RETRY = 10.0
"""Seconds after which a node is greeted again if its answer was lost."""
MAX_REPLY_BYTES = 1 << 16
"""Bytes of a node's answer to a greeting."""
MAX_COMPLAINTS = 10
"""Warnings about one client that cannot take part."""
DUPLICATE_TIMEOUT = 80.0
"""Seconds after which a node is refused if another has its number. A killed client without a key
counts as connected for most of a minute."""
FAREWELL_TIMEOUT = 10.0
"""Seconds for clients to confirm that the run is over."""


class SentGreeting(NamedTuple):
    """A greeting for a node that has connected."""

    message: NodeMessage
    nonce: str
    """The answer must repeat it."""


@runtime_checkable
class Greet(Protocol):
    """A function that makes the greeting of a node."""

    def __call__(
        self, node: int, client: int | None, refusal: str = "", over: bool = False
    ) -> SentGreeting:
        """Args:
        node: its id.
        client: the owner of its key; None: there are no keys.
        refusal: why it cannot take part.
        over: whether the run is over.
        """


class NodeStatus(NamedTuple):
    """The status of a node that was greeted."""

    client: int | None
    """Number that it claims."""
    welcome: bool
    reason: str
    """Reason why it is not welcome; empty if unknown."""
    since: float


class Fleet:
    """The connected clients of a SuperLink.

    All methods but the constructor may raise `relay_client.LostError`; `reconnect` helps.
    """

    def __init__(
        self,
        connect: Callable[[], Transport],
        keys: Mapping[int, bytes] | None,
        notify: Notify,
        greet: Greet,
    ) -> None:
        """Args:
        connect: returns a transport, and starts all that it needs.
        keys: every client's public key; other nodes are sent nothing. None: each node may claim
            any number.
        notify: is called with a line about a client that connects or leaves.
        greet: makes the greeting of a new node.
        """
        self._greet = greet
        self._connect = connect
        self._owners = None if keys is None else {key: client for client, key in keys.items()}
        self._notify = notify
        self._there: set[int] = set()
        self._statuses: dict[int, NodeStatus] = {}
        """By node."""
        self._welcome: set[int] = set()
        """Clients with keys that can take part: one that still trains for a server that was lost is
        too busy to say so again."""
        self._complaints: Counter[str] = Counter()
        self._greetings: dict[str, SentGreeting] = {}
        """Greetings without an answer yet."""
        self.on_connected: Callable[[Collection[int]], None] = lambda clients: None
        """Is called with the connected clients at every update."""
        self._transport = connect()

    def rekey(self, keys: Mapping[int, bytes]) -> list[int]:
        """Replace the clients' keys; a node with another key belongs to no client.

        Returns:
            The clients whose keys have changed, are new, or are gone.
        """
        before = {client: key for key, client in (self._owners or {}).items()}
        changed = sorted(c for c in before.keys() | keys.keys() if before.get(c) != keys.get(c))
        self._welcome -= {*changed}
        self._owners = {key: client for client, key in keys.items()}
        return changed

    def reconnect(self) -> None:
        """Replace a lost transport, and wait for the clients that were connected."""
        self._transport.close()
        self._statuses, self._greetings = {}, {}
        self._transport = self._connect()
        self.wait(self._there, len(self._there), RECONNECT_TIMEOUT)

    def push(self, messages: list[NodeMessage]) -> list[str]:
        """As `Transport.push`."""
        return self._transport.push(messages)

    def pull(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        """As `Transport.pull`."""
        return self._transport.pull(ids)

    def connected(self) -> dict[int, int]:
        """Return the node of each client that is connected now."""
        nodes = self._transport.nodes()
        self._greet_new(nodes)
        found = self._by_claims() if self._owners is None else self._by_keys(nodes)
        for client in sorted(self._there ^ found.keys()):
            came = client in found
            self._notify(
                f"client {client} {'is connected' if came else 'is gone'} ({len(found)} connected)"
            )
        self._there = {*found}
        self.on_connected(self._there)
        return found

    def wait(self, clients: Collection[int], enough: int, seconds: float) -> dict[int, int]:
        """Wait until enough clients are connected, and return their nodes.

        Args:
            clients: that count.
            enough: number of them to wait for.
            seconds: to wait at most.
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
        """Wait for the rest of those clients, as long as new ones connect."""
        there, last = 0, time.monotonic()
        while (now := len(self.connected().keys() & clients)) < len(clients):
            if now > there:
                there, last = now, time.monotonic()
            if time.monotonic() - last >= SETTLE_TIME:
                return
            time.sleep(POLL_INTERVAL)

    def farewell(self) -> int:
        """Tell all connected clients that the run is over.

        Returns:
            Number of clients that have confirmed it.
        """
        found = self.connected().items()
        keys = self._owners is not None
        said = [self._greet(node, client if keys else None, over=True) for client, node in found]
        waiting = (
            set(self._transport.push([greeted.message for greeted in said])) if said else set()
        )
        end = time.monotonic() + FAREWELL_TIMEOUT
        while waiting and time.monotonic() < end:
            waiting -= {
                answer.id
                for answer in self._transport.pull(dict.fromkeys(waiting, MAX_REPLY_BYTES))
            }
            if waiting:
                time.sleep(0.05)
        return len(said) - len(waiting)

    def close(self) -> None:
        self._transport.close()

    def _greet_new(self, nodes: Mapping[int, bytes]) -> None:
        """Greet new nodes, and read the answers to earlier greetings."""
        now = time.monotonic()
        self._statuses = {node: status for node, status in self._statuses.items() if node in nodes}
        lost = {
            n
            for n, status in self._statuses.items()
            if status.client is None and now > status.since + GREETING_RETRY
        }
        waiting = {greeted.message.node for greeted in self._greetings.values()}
        known = ({*self._statuses} - lost) | waiting
        whose = self._owners_by_node(nodes)
        if new := [self._greet(node, whose[node]) for node in whose if node not in known]:
            self._send(new)
        if not self._greetings:
            return
        for answer in self._transport.pull(dict.fromkeys(self._greetings, MAX_REPLY_BYTES)):
            greeted = self._greetings.pop(answer.id, None)
            if greeted is None or answer.node not in (greeted.message.node, None):
                continue
            node = greeted.message.node
            status, before = _status_from(answer, greeted.nonce, now), self._statuses.get(node)
            self._statuses[node] = status
            if status.reason and (before is None or before.reason != status.reason):
                self._warn_refused(whose.get(node), status)

    def _warn_refused(self, client: int | None, status: NodeStatus) -> None:
        """Print the reason why a client cannot take part, a limited number of times."""
        if client is None:
            client = status.client
        who = "a node" if client is None else f"client {client}"
        self._complaints[who] += 1
        if self._complaints[who] < MAX_COMPLAINTS:
            self._notify(f"{who} cannot take part: {status.reason}")
        elif self._complaints[who] == MAX_COMPLAINTS:
            self._notify(f"{who} cannot take part: {status.reason}; no more is said of it")

    def _send(self, greetings: list[SentGreeting]) -> None:
        ids = self._transport.push([greeted.message for greeted in greetings])
        self._greetings |= dict(zip(ids, greetings, strict=True))

    def _owners_by_node(self, nodes: Mapping[int, bytes]) -> Mapping[int, int | None]:
        """Return the client of each node by its key, None without keys; skip unknown keys."""
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
        """Return nodes by the numbers that they claim; the first node keeps a number."""
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


def _status_from(answer: NodeAnswer, nonce: str, now: float) -> NodeStatus:
    """Return the status that a node's answer to a greeting gives."""
    if isinstance(answer.content, str):
        return NodeStatus(None, False, one_line(answer.content), now)
    try:
        reply = read_reply(answer.content)
    except MessageError as error:
        return NodeStatus(None, False, str(error), now)
    if reply.nonce != nonce:
        return NodeStatus(None, False, "it answered for another request", now)
    return NodeStatus(answer.client, not reply.failure, reply.failure, now)
