"""A federation over a network: the messages, the state that a client keeps, its process, and keys.

Flower carries the messages between machines and sees only bytes. Importing this package imports no
JAX, so that the process that only forwards bytes starts quickly.

The names in `__all__` are what carries the messages in another way needs; all else is private.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedkl.network.client import NetworkClient
    from fedkl.network.exchange import Exchange, RequestStamp
    from fedkl.network.messages import new_federation, new_nonce, new_turn, read_request

__all__ = [
    "Exchange",
    "NetworkClient",
    "RequestStamp",
    "new_federation",
    "new_nonce",
    "new_turn",
    "read_request",
]

_HOMES = {
    "Exchange": "exchange",
    "NetworkClient": "client",
    "RequestStamp": "exchange",
    "new_federation": "messages",
    "new_nonce": "messages",
    "new_turn": "messages",
    "read_request": "messages",
}

MAX_MESSAGE_BYTES = 10**9
"""Default limit of a message."""


if not TYPE_CHECKING:  # else a type checker would believe in every name

    def __getattr__(name: str) -> Any:
        """Return a public name, imported when it is asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"fedkl.network.{_HOMES[name]}"), name)
