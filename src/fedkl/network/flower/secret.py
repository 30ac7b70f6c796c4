"""The secret that the processes of one `fedkl serve` or `fedkl join` share.

Flower's API has no password, so ours has one (`api_guard`). The secret is in a file that only
this user can read, never on a command line, and its name is in the environment of those processes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from fedkl.io import files
from fedkl.network.checks import parse_address

HEADER = "fedkl-secret"
"""Header of a request to Flower's API."""
FILE, ADDRESS = "FEDKL_SECRET", "FEDKL_API"
"""Environment variables: the file with the secret, and the `HOST:PORT` that it is for."""
_PORTS = {"http": 80, "https": 443}


def make(path: Path, address: str) -> dict[str, str]:
    """Make a secret.

    Args:
        path: of the file for it.
        address: of Flower's API, `HOST:PORT`; no other address is sent the secret.

    Returns:
        The environment variables of a process that may use it.
    """
    files.write_atomically(path, secrets.token_hex(32).encode(), 0o600)
    return {FILE: str(path), ADDRESS: address}


def read(environment: Mapping[str, str] = os.environ) -> str:
    """Read the secret that an environment names.

    Raises:
        KeyError: it names none.
    """
    return Path(environment[FILE]).read_text(encoding="ascii")


def attach() -> None:
    """Add the secret to requests of this process to its address.

    Do nothing without a secret in the environment: the SuperLink is another user's.
    """
    if FILE not in os.environ:
        return
    secret, address = read(), parse_address(os.environ[ADDRESS])
    send = httpx.Client.send

    def send_with_secret(self: httpx.Client, request: httpx.Request, **options: Any) -> Any:
        url = request.url
        if (url.host, url.port or _PORTS.get(url.scheme)) == address:
            request.headers[HEADER] = secret
        return send(self, request, **options)

    httpx.Client.send = send_with_secret  # type: ignore[method-assign]  # Flower makes the client
