"""What a server says to a client that connects, before it asks for anything: what both must share.

A client that cannot take part says so at once, to the server and to whoever started it.
"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any, NamedTuple

from fedkl.config.config import Config
from fedkl.network import LARGEST, wire
from fedkl.network.messages import Spaces, check_federation, read_nonce, read_spaces
from fedkl.network.wire import MessageError
from fedkl.training import provenance

KIND = "greeting"
ALGORITHM, WORLD = "algorithm", "world"


class Greeting(NamedTuple):
    """What a server says of itself."""

    federation: str
    """As `new_federation` makes it, once for a run."""
    client: int | None
    """Whose key the client has, as the server knows it; None: there are no keys."""
    turn: int
    """As `Request.turn`."""
    nonce: str
    """As `Request.nonce`."""
    versions: dict[str, str]
    """Of the packages that results depend on, as `versions` gives them."""
    config: str
    """The config as TOML."""
    spaces: Spaces
    sources: dict[str, str]
    """As `sources_of` gives them."""
    refusal: str
    """Why the client cannot take part, for what only the server knows; empty: it can."""
    over: bool = False
    """Whether the run is over, and this a farewell."""


def versions() -> dict[str, str]:
    """Of the packages that results depend on, this one first; that of Python changes no bit."""
    return {name: version for name, version in provenance.versions().items() if name != "python"}


def sources_of(config: Config) -> dict[str, str]:
    """Checksums of the files in which the classes are that both sides run, also plugins."""
    return {ALGORITHM: _source(config.algorithm), WORLD: _source(config.world)}


def write_greeting(greeting: Greeting, limit: int = LARGEST) -> bytes:
    """The greeting as bytes.

    Raises:
        MessageError: it is too large.
    """
    return wire.pack(KIND, greeting._asdict() | {"spaces": list(greeting.spaces)}, {}, limit)


def read_greeting(data: bytes, limit: int = LARGEST) -> Greeting:
    """The greeting that bytes are.

    Raises:
        MessageError: they are none.
    """
    header, _ = wire.unpack(KIND, data, limit)
    wire.check_names(header, Greeting._fields)
    sources, versions = header["sources"], header["versions"]
    if not isinstance(sources, dict) or not isinstance(versions, dict):
        raise MessageError("sources and versions are not tables")
    wire.check_names(sources, (ALGORITHM, WORLD))
    if type(over := header["over"]) is not bool:
        raise MessageError("over is neither true nor false")
    return Greeting(
        federation=check_federation(wire.text(header, "federation")),
        client=None if header["client"] is None else wire.whole(header, "client"),
        turn=wire.whole(header, "turn"),
        nonce=read_nonce(header),
        versions={name: wire.shortened(wire.text(versions, name)) for name in versions},
        config=wire.text(header, "config"),
        spaces=read_spaces(header["spaces"]),
        sources={name: wire.text(sources, name) for name in sources},
        refusal=wire.shortened(wire.text(header, "refusal")),
        over=over,
    )


def _source(thing: Any) -> str:
    """Empty if there is no file: it was typed into a notebook."""
    try:
        path = inspect.getsourcefile(type(thing))
        return "" if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (TypeError, OSError):
        return ""
