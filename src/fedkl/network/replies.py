"""What a client answers, as bytes."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from fedkl.arrays import from_arrays
from fedkl.engines.base import Failure
from fedkl.network import LARGEST, wire
from fedkl.network.wire import Arrays

R = TypeVar("R")

_KIND = "reply"


class Reply(NamedTuple):
    """A client's answer to one request, which it repeats the names of."""

    federation: str
    client: int
    round: int
    turn: int
    nonce: str
    failure: str
    """Why there is no result; empty if there is one."""
    result: Arrays


def write_reply(reply: Reply, limit: int = LARGEST) -> bytes:
    """The reply as bytes.

    Raises:
        MessageError: it is too large.
    """
    header = reply._asdict() | {"failure": wire.shortened(reply.failure)}
    del header["result"]
    return wire.pack(_KIND, header, reply.result, limit)


def read_reply(data: bytes, limit: int = LARGEST) -> Reply:
    """The reply that bytes are.

    Raises:
        MessageError: they are none.
    """
    header, arrays = wire.unpack(_KIND, data, limit)
    wire.check_names(header, {*Reply._fields} - {"result"})
    return Reply(
        federation=wire.text(header, "federation"),
        client=wire.whole(header, "client"),
        round=wire.whole(header, "round"),
        turn=wire.whole(header, "turn"),
        nonce=wire.text(header, "nonce"),
        failure=wire.shortened(wire.text(header, "failure")),
        result=arrays,
    )


def result_of(reply: Reply, expected: R) -> R | Failure:
    """What a client answered, of the structure that is expected; or why it does not count.

    Args:
        reply: the client's.
        expected: an answer with the right structure, shapes and types.
    """
    if reply.failure:
        return Failure(reply.failure)
    try:
        return from_arrays(expected, reply.result)
    except ValueError as error:  # which names what is amiss, perhaps by a name of the sender's
        return Failure(wire.shortened(str(error)))
