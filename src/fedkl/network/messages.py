"""Requests to a client, its replies, and the greeting that comes before them, as bytes.

A greeting holds all that server and client must share. A client that cannot take part says so at
once, to the server and to the user who started it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
import secrets
import time
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedkl.clients.work import Evaluate, Train, Work
from fedkl.config.config import Config
from fedkl.core.settings import registered
from fedkl.engines.base import Failure, KeyData
from fedkl.heterogeneity import Measure
from fedkl.io.arrays import from_arrays
from fedkl.network import MAX_MESSAGE_BYTES, wire
from fedkl.network.wire import Arrays, MessageError
from fedkl.training import provenance
from fedkl.worlds.base import AnyWorld, Continuous

WORKS: dict[str, type[Any]] = {cls.name: cls for cls in (Train, Evaluate, Measure)}
"""Work that a client does over a network. Recording an episode is not among it: that is the
client's data, and never leaves it."""
_REQUEST = "request"
_FEDERATION = _NONCE = re.compile(r"[0-9a-f]{32}")
_MAX_KEY_SIZE = 16
R = TypeVar("R")
_REPLY = "reply"
GREETING = "greeting"
ALGORITHM, WORLD, UPLOAD = "algorithm", "world", "upload"


class SpaceSizes(NamedTuple):
    """Sizes of the policy's observations and actions; server and client must agree on them."""

    observation_size: int
    discrete: bool
    action_size: int
    """Size of a continuous action, or number of discrete actions."""

    def __str__(self) -> str:
        size = self.action_size
        actions = f"{size} discrete actions" if self.discrete else f"actions of size {size}"
        return f"observations of size {self.observation_size} and {actions}"


class Request(NamedTuple):
    """Work for one client."""

    federation: str
    """As `new_federation` makes it, once for a run."""
    client: int
    round: int
    """Number of finished rounds. The state after this request is that of `round + 1`."""
    turn: int
    """Number of the request in its federation, greater than all before it, also after a restart of
    the server. The reply repeats it."""
    nonce: str
    """As `new_nonce` makes it. The reply repeats it: only the client that was asked knows it."""
    since: int
    """As `engines.Job.since`."""
    floor: int
    """The server will not go back beyond the state that this round left."""
    config: str
    """The config as TOML."""
    spaces: SpaceSizes
    work: Work[Any]
    key: KeyData
    shared: KeyData
    """Key for draws that clients share."""
    model: Arrays
    """The model that the client starts from."""


def new_federation() -> str:
    """Return a name that no other federation has."""
    return secrets.token_hex(16)


def new_turn(last: int) -> int:
    """Return a turn after the last one, and after all those of an earlier server process."""
    return max(last + 1, time.time_ns())


def new_nonce() -> str:
    """Return a random string that cannot be guessed."""
    return secrets.token_hex(16)


def check_federation(name: str) -> str:
    """Return the name if `new_federation` could have made it.

    Raises:
        MessageError: it is not; it could be a path.
    """
    if not _FEDERATION.fullmatch(name):
        raise MessageError(f"federation is {wire.one_line(repr(name))}, not 32 hexadecimal digits")
    return name


def spaces_of(world: AnyWorld) -> SpaceSizes:
    """Return the sizes of a world's observations and actions."""
    actions = world.actions
    if isinstance(actions, Continuous):
        return SpaceSizes(world.observation_size, False, actions.size)
    return SpaceSizes(world.observation_size, True, actions.number)


def write_request(request: Request, limit: int = MAX_MESSAGE_BYTES) -> bytes:
    """Encode a request.

    Raises:
        MessageError: it is too large, or asks for work that clients do not do.
    """
    _class_of(request.work.name)
    work = {"name": request.work.name} | {
        field.name: getattr(request.work, field.name)
        for field in dataclasses.fields(typing.cast(Any, request.work))
    }
    plain = {"spaces": list(request.spaces), "work": work}
    words = {name: getattr(request, name).tolist() for name in ("key", "shared")}
    header = {**request._asdict(), **plain, **words}
    del header["model"]
    return wire.pack(_REQUEST, header, request.model, limit)


def read_request(data: bytes, limit: int = MAX_MESSAGE_BYTES) -> Request:
    """Decode a request.

    Raises:
        MessageError: the bytes are not one.
    """
    header, arrays = wire.unpack(_REQUEST, data, limit)
    wire.check_entries(header, {*Request._fields} - {"model"})
    return Request(
        federation=check_federation(wire.str_entry(header, "federation")),
        client=wire.int_entry(header, "client"),
        round=wire.int_entry(header, "round"),
        turn=wire.int_entry(header, "turn"),
        nonce=read_nonce(header),
        since=wire.int_entry(header, "since"),
        floor=wire.int_entry(header, "floor"),
        config=wire.str_entry(header, "config"),
        spaces=read_spaces(header["spaces"]),
        work=_work(header["work"]),
        key=_key_data(header, "key"),
        shared=_key_data(header, "shared"),
        model=arrays,
    )


def read_nonce(header: Mapping[str, Any]) -> str:
    """Return the nonce of a header.

    Raises:
        MessageError: it is not one.
    """
    if not _NONCE.fullmatch(nonce := wire.str_entry(header, "nonce")):
        raise MessageError(f"nonce is {wire.one_line(repr(nonce))}, not 32 hexadecimal digits")
    return nonce


def read_spaces(given: Any) -> SpaceSizes:
    """Return the spaces of a header.

    Raises:
        MessageError: they are not valid.
    """
    if not isinstance(given, list) or [type(x) for x in given] != [int, bool, int]:
        raise MessageError("spaces are not two sizes with a kind of actions between them")
    return SpaceSizes(*given)


def _class_of(name: str) -> type[Any]:
    if name == "record":
        raise MessageError("an episode is the client's data, and never leaves it")
    if name not in WORKS:
        raise MessageError(f"a client cannot be asked to {wire.one_line(repr(name))}")
    return WORKS[name]


def _work(given: Any) -> Work[Any]:
    if not isinstance(given, dict) or type(given.get("name")) is not str:
        raise MessageError("work is not a table with a name")
    cls = _class_of(given["name"])
    hints = typing.get_type_hints(cls)
    fields = [field.name for field in dataclasses.fields(cls)]
    wire.check_entries(given, {"name", *fields})
    result: Work[Any] = cls(**{name: _field(given, name, hints[name]) for name in fields})
    return result


def _field(given: Mapping[str, Any], name: str, kind: type) -> Any:
    if kind is float:
        return wire.float_entry(given, name)
    if kind is int:
        return wire.int_entry(given, name)
    if type(given[name]) is not kind:
        raise MessageError(f"{name} is {wire.one_line(repr(given[name]))}, of another type")
    return given[name]


def _key_data(header: Mapping[str, Any], name: str) -> KeyData:
    words = header[name]
    some = isinstance(words, list) and 0 < len(words) <= _MAX_KEY_SIZE
    if not some or not all(type(word) is int and 0 <= word < 2**32 for word in words):
        raise MessageError(f"{name} is not a key")
    return np.asarray(words, np.uint32)


class Reply(NamedTuple):
    """A client's answer to one request, whose identity it repeats."""

    federation: str
    client: int
    round: int
    turn: int
    nonce: str
    failure: str
    """Reason why there is no result; empty if there is one."""
    result: Arrays


def write_reply(reply: Reply, limit: int = MAX_MESSAGE_BYTES) -> bytes:
    """Encode a reply.

    Raises:
        MessageError: it is too large.
    """
    header = reply._asdict() | {"failure": wire.one_line(reply.failure)}
    del header["result"]
    return wire.pack(_REPLY, header, reply.result, limit)


def read_reply(data: bytes, limit: int = MAX_MESSAGE_BYTES) -> Reply:
    """Decode a reply.

    Raises:
        MessageError: the bytes are not one.
    """
    header, arrays = wire.unpack(_REPLY, data, limit)
    wire.check_entries(header, {*Reply._fields} - {"result"})
    return Reply(
        federation=wire.str_entry(header, "federation"),
        client=wire.int_entry(header, "client"),
        round=wire.int_entry(header, "round"),
        turn=wire.int_entry(header, "turn"),
        nonce=wire.str_entry(header, "nonce"),
        failure=wire.one_line(wire.str_entry(header, "failure")),
        result=arrays,
    )


def result_of(reply: Reply, expected: R) -> R | Failure:
    """Return a reply's result in the expected structure, or a `Failure`.

    Args:
        reply: the client's.
        expected: an answer with the right structure, shapes and types.
    """
    if reply.failure:
        return Failure(reply.failure)
    try:
        return from_arrays(expected, reply.result)
    except ValueError as error:  # the message may hold a name that the sender chose
        return Failure(wire.one_line(str(error)))


class Greeting(NamedTuple):
    """The server's versions, config and source code, for a client that connects."""

    federation: str
    """As `new_federation` makes it, once for a run."""
    client: int | None
    """Number of the client that the key belongs to; None: there are no keys."""
    turn: int
    """As `Request.turn`."""
    nonce: str
    """As `Request.nonce`."""
    versions: dict[str, str]
    """As `result_versions` returns them."""
    config: str
    """The config as TOML."""
    spaces: SpaceSizes
    sources: dict[str, str]
    """As `sources_of` returns them."""
    refusal: str
    """Reason of the server's why the client cannot take part; empty: it can."""
    over: bool = False
    """True if the run is over."""


def result_versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on; Python changes no bit."""
    return {name: version for name, version in provenance.versions().items() if name != "python"}


def sources_of(config: Config) -> dict[str, str]:
    """Return checksums of the source files of the algorithm, with the functions that its settings
    name, of the world and of the client's chain, also in plugins."""
    return {
        ALGORITHM: _source(type(config.algorithm), *registered(config.algorithm)),
        WORLD: _source(type(config.world)),
        UPLOAD: _source(*map(type, config.upload.each)),
    }


def write_greeting(greeting: Greeting, limit: int = MAX_MESSAGE_BYTES) -> bytes:
    """Encode a greeting.

    Raises:
        MessageError: it is too large.
    """
    return wire.pack(GREETING, greeting._asdict() | {"spaces": list(greeting.spaces)}, {}, limit)


def read_greeting(data: bytes, limit: int = MAX_MESSAGE_BYTES) -> Greeting:
    """Decode a greeting.

    Raises:
        MessageError: the bytes are not one.
    """
    header, _ = wire.unpack(GREETING, data, limit)
    wire.check_entries(header, Greeting._fields)
    sources, versions = header["sources"], header["versions"]
    if not isinstance(sources, dict) or not isinstance(versions, dict):
        raise MessageError("sources and versions are not tables")
    wire.check_entries(sources, (ALGORITHM, WORLD, UPLOAD))
    if type(over := header["over"]) is not bool:
        raise MessageError("over is neither true nor false")
    return Greeting(
        federation=check_federation(wire.str_entry(header, "federation")),
        client=None if header["client"] is None else wire.int_entry(header, "client"),
        turn=wire.int_entry(header, "turn"),
        nonce=read_nonce(header),
        versions={name: wire.one_line(wire.str_entry(versions, name)) for name in versions},
        config=wire.str_entry(header, "config"),
        spaces=read_spaces(header["spaces"]),
        sources={name: wire.str_entry(sources, name) for name in sources},
        refusal=wire.one_line(wire.str_entry(header, "refusal")),
        over=over,
    )


def _source(*things: Any) -> str:
    """Return the checksum of the source files of classes and functions; empty if one has none (a
    notebook)."""
    digest = hashlib.sha256()
    for thing in things:
        try:
            path = inspect.getsourcefile(inspect.unwrap(thing))
            if path is None:
                return ""
            digest.update(Path(path).read_bytes())
        except (TypeError, OSError):
            return ""
    return digest.hexdigest()
