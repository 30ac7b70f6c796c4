"""Carries messages to the nodes of a SuperLink and back, by way of the relay."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fedkl.network.flower import frames

ANSWERING = 120.0
"""Seconds that the relay may take to hand over what it is given, or what it has."""


class LostError(Exception):
    """Nothing can be carried any more; the message says why."""


class Parcel(NamedTuple):
    """Bytes for a node."""

    node: int
    blob: bytes
    seconds: float
    """After which nobody waits for an answer."""


class Answer(NamedTuple):
    """What came back for a parcel."""

    id: str
    node: int | None
    """Who sent it, as far as that is known."""
    client: int | None
    """The number that its sender claims."""
    content: bytes | str
    """A sentence: why there is nothing."""
    lost: bool = False
    """Whether it was lost on the way, there or back."""


class Carrier(Protocol):
    """Whoever carries."""

    def nodes(self) -> dict[int, bytes]:
        """The nodes that are connected, and the public key of each (PEM)."""

    def push(self, parcels: Sequence[Parcel]) -> list[str]:
        """Sends parcels; what each is known by, empty for one that cannot be sent."""

    def pull(self, ids: Mapping[str, int]) -> list[Answer]:
        """The answers that are there by now; each is given once, and its number then forgotten.

        Args:
            ids: the bytes that each may have; one that has more is a sentence that says so.
        """

    def close(self) -> None:
        """Ends it."""


class RelayCarrier:
    """A carrier that asks the relay. All of it may raise `LostError`."""

    def __init__(self, connection: socket.socket, problem: Callable[[], str | None]) -> None:
        """Args:
        connection: on which the relay has called.
        problem: says what is wrong with the SuperLink; the relay may take minutes to see it.
        """
        self._connection = connection
        self._problem = problem

    def nodes(self) -> dict[int, bytes]:
        """The nodes that are connected, and the public key of each (PEM)."""
        return {node: key.encode() for node, key in self._ask({"do": "nodes"}).header["nodes"]}

    def push(self, parcels: Sequence[Parcel]) -> list[str]:
        """Sends parcels; what each is known by, empty for one that cannot be sent."""
        asked = {"do": "push", "to": [(parcel.node, parcel.seconds) for parcel in parcels]}
        return self._ask(asked, [parcel.blob for parcel in parcels]).header["ids"]

    def pull(self, ids: Mapping[str, int]) -> list[Answer]:
        """The answers that are there by now, as far as they are small enough."""
        header, blobs = self._ask({"do": "pull", "ids": dict(ids)})
        rest = iter(blobs)
        return [
            Answer(i, node, client, next(rest) if reason is None else reason, lost)
            for i, node, client, reason, lost in header["answers"]
        ]

    def close(self) -> None:
        """The relay ends when nobody asks it any more."""
        self._connection.close()

    def _ask(self, header: Mapping[str, object], blobs: Sequence[bytes] = ()) -> frames.Frame:
        end = time.monotonic() + ANSWERING

        def waiting() -> None:
            if (reason := self._problem()) is not None:
                raise LostError(reason)
            if time.monotonic() > end:
                raise LostError(f"the relay gave no answer within {ANSWERING:g} s")

        try:
            frames.send(self._connection, header, blobs)
            answer = frames.receive(self._connection, waiting)
        except OSError as error:
            raise LostError(f"the relay cannot be reached: {error}") from error
        if answer is None:
            raise LostError("the relay has ended")
        if (reason := answer.header.get("lost")) is not None:
            raise LostError(f"the relay lost the SuperLink ({reason})")
        return answer
