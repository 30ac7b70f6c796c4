"""The relay: Flower's ServerApp, which sends and fetches messages for `fedkl serve`.

Only an app may use Flower's Grid. It connects to a socket of `fedkl serve`, and forwards messages
until that is closed, without reading them.
"""

from __future__ import annotations

import copy
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.serverapp import Grid, ServerApp

from fedkl.network import sockets
from fedkl.network.flower import BLOB, CLIENT, NO_ANSWER, RECORD, relay_client
from fedkl.network.flower.relay_client import NodeAnswer

ONLINE = "online"
STOP_TIMEOUT = 3.0
"""Seconds for Flower to end the run."""
MIN_POLL, MAX_POLL = 0.05, 0.5
"""Bounds of the seconds between two polls: a tenth of the time since the last request."""
LATE_WINDOW = 60.0
"""Seconds after its deadline for which an answer, or Flower's error, is still fetched."""
_REASONS = {
    1: "its app cannot be loaded",
    2: "it failed",
    3: "it did not answer in time",
    4: "its answer was lost on the way",
    5: "its connection was lost",
    8: "its app ended before it answered",
    NO_ANSWER: "it has no answer",
}
_LOST_CODES = (3, 4, 5, 8)
"""Codes that Flower sets without the client: its own reason adds nothing."""


class Fetcher:
    """A fetcher of answers, each in a thread of its own.

    Flower waits for the whole of an announced answer, also for one that never comes, and returns no
    other client's meanwhile.
    """

    def __init__(self, grid: Any) -> None:
        """Args:
        grid: Flower's (`HttpGrid`), which several threads may use.
        """
        self._grid = grid
        self._changed = threading.Condition()
        self._waiting: dict[str, float] = {}
        """Messages without an announced answer, and the time until which one is polled for."""
        self._answers: dict[str, tuple[NodeAnswer, float]] = {}
        """With the time after which each is dropped."""
        self._lost: Exception | None = None
        self._since = 0.0
        """Time of the last request."""
        threading.Thread(target=self._poll, daemon=True).start()

    def expect(self, i: str, seconds: float) -> None:
        """Poll for the answer to a message from now on.

        Args:
            i: id of the message.
            seconds: until its deadline.
        """
        with self._changed:
            self._since = time.monotonic()
            self._waiting[i] = self._since + seconds + LATE_WINDOW
            self._changed.notify()

    def take(self, ids: Mapping[str, int]) -> list[NodeAnswer]:
        """Return the answers that have arrived; each is returned once.

        Raises:
            Exception: the SuperLink is gone.
        """
        if self._lost is not None:
            raise self._lost
        now = time.monotonic()
        with self._changed:
            taken = [self._answers.pop(i)[0] for i in ids if i in self._answers]
            self._answers = {i: came for i, came in self._answers.items() if now < came[1]}
        return taken

    def _poll(self) -> None:
        """Poll for announced answers until the SuperLink is gone."""
        while self._lost is None:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                now = time.monotonic()
                self._waiting = {i: until for i, until in self._waiting.items() if now < until}
                ids = list(self._waiting)
                pause = min(max((now - self._since) / 10, MIN_POLL), MAX_POLL)
            try:
                announced = _announced(self._grid, ids) if ids else {}
            except Exception as error:
                self._lost = error  # `take` raises it
                return
            for i, alone in announced.items():
                with self._changed:
                    until = self._waiting.pop(i, now)
                threading.Thread(target=self._fetch, args=(i, alone, until), daemon=True).start()
            time.sleep(pause)

    def _fetch(self, i: str, alone: Grid, until: float) -> None:
        try:
            (reply,) = alone.pull_messages([i])
            answer = _answer(i, reply)
        except Exception as error:  # a client may send bytes that cannot be read
            reason = f"its answer cannot be read: {type(error).__name__}: {error}"
            answer = NodeAnswer(i, None, None, reason)
        with self._changed:
            self._answers[i] = answer, until


class _Claimed:
    """Flower's client with one answer that was pulled already: Flower returns each once."""

    def __init__(self, client: Any, message: Any, tree: Any) -> None:
        self._client = client
        self._given = PullAppMessagesResponse(messages_list=[message], message_object_trees=[tree])

    def PullMessages(self, request: object) -> PullAppMessagesResponse:  # noqa: N802 (Flower's)
        """Return that answer."""
        return self._given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _announced(grid: Any, ids: list[str]) -> dict[str, Grid]:
    """Return the announced answers, each as a grid that pulls this answer alone.

    Flower's own `pull_messages` fetches announced answers one after the other. The names used here
    are internal to the versions of Flower that we require.
    """
    client = grid._runtime_client
    response = client.PullMessages(PullAppMessagesRequest(message_ids=ids))
    found: dict[str, Grid] = {}
    for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
        alone = copy.copy(grid)
        alone._client = _Claimed(client, message, tree)
        found[message.metadata.reply_to_message_id] = alone
    return found


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Forward messages until `fedkl serve` ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.run_config["socket"]))
        sockets.require_same_user(connection)
        threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
        relay_client.send_frame(connection, {"run": context.run_id})
        serve(grid, connection)


def serve(grid: Grid, connection: socket.socket) -> None:
    """Serve the requests of a connection until it is closed."""
    fetcher = Fetcher(grid)
    while (asked := relay_client.receive_frame(connection)) is not None:
        try:
            header, blobs = _do(grid, fetcher, asked)
        except Exception as error:
            # `fedkl serve` can do something about it; it is raised here too.
            relay_client.send_frame(connection, {"lost": f"{type(error).__name__}: {error}"})
            raise
        relay_client.send_frame(connection, header, blobs)


def _end_with(connection: int) -> None:
    """End this process when `fedkl serve` has ended.

    Without the SuperLink, Flower itself would try to reach it for minutes.
    """
    poll = select.poll()
    poll.register(connection, 0)  # a hang-up is reported all the same
    poll.poll()
    time.sleep(STOP_TIMEOUT)
    os._exit(0)


def _do(
    grid: Grid, fetcher: Fetcher, asked: relay_client.Frame
) -> tuple[dict[str, Any], list[bytes]]:
    match asked.header["do"]:
        case "nodes":
            return _nodes(grid), []
        case "push":
            return _push(grid, fetcher, asked), []
        case "pull":
            return _pull(fetcher, asked.header["ids"])
        case other:
            raise ValueError(f"the relay cannot {other}")


def _nodes(grid: Grid) -> dict[str, Any]:
    nodes = [n for n in grid.get_nodes() if n.status == ONLINE]
    return {"nodes": [[n.node_id, n.public_key.decode("ascii", "replace")] for n in nodes]}


def _push(grid: Grid, fetcher: Fetcher, asked: relay_client.Frame) -> dict[str, Any]:
    messages = [
        Message(
            RecordDict({RECORD: ConfigRecord({BLOB: blob})}),
            dst_node_id=node,
            message_type="query",
            ttl=seconds,
        )
        for (node, seconds), blob in zip(asked.header["to"], asked.blobs, strict=True)
    ]
    ids = list(grid.push_messages(messages))
    if len(ids) != len(messages):  # too much for Flower at once
        ids = [i for message in messages for i in grid.push_messages([message]) or [""]]
    for i, (_, seconds) in zip(ids, asked.header["to"], strict=True):
        if i:
            fetcher.expect(i, seconds)
    # One that Flower refuses has no number, and keeps its place.
    return {"ids": [i or "" for i in ids]}


def _pull(fetcher: Fetcher, ids: Mapping[str, int]) -> tuple[dict[str, Any], list[bytes]]:
    # What is too large ends here: `fedkl serve` holds the state of the run, and this nothing.
    answers = [_limited(answer, ids[answer.id]) for answer in fetcher.take(ids)]
    blobs = [answer.content for answer in answers if isinstance(answer.content, bytes)]
    heads = [
        (i, node, client, None if isinstance(content, bytes) else content, lost)
        for i, node, client, content, lost in answers
    ]
    return {"answers": heads}, blobs


def _limited(answer: NodeAnswer, limit: int) -> NodeAnswer:
    if not isinstance(answer.content, bytes) or len(answer.content) <= limit:
        return answer
    size = len(answer.content)
    return answer._replace(content=f"its answer of {size} bytes is over the limit of {limit}")


def _answer(i: str, reply: Message) -> NodeAnswer:
    node = reply.metadata.src_node_id
    if reply.has_error():
        code, reason = reply.error.code, reply.error.reason
        said = _REASONS.get(code, f"Flower failed with code {code}")
        known = reason and code not in _LOST_CODES
        lost = code in (*_LOST_CODES, NO_ANSWER)
        return NodeAnswer(i, node, None, f"{said}: {reason}" if known else said, lost)
    record = reply.content.get(RECORD)
    entries = dict(record) if isinstance(record, ConfigRecord) else {}
    blob, client = entries.get(BLOB), entries.get(CLIENT)
    return NodeAnswer(
        i,
        node,
        client if type(client) is int else None,
        blob if isinstance(blob, bytes) else "its answer is not one of fedkl's",
    )
