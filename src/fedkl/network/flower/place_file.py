"""The file that tells an app of Flower's which client it serves; the environment names it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.network.client_process import ClientPlace
from fedkl.network.signatures import Verifier

VARIABLE = "FEDKL_PLACE"
"""Environment variable with the path of the file."""


def write_place(path: Path, place: ClientPlace, verifier: Verifier | None) -> None:
    """Write the file, readable by this user only.

    Args:
        path: of the file.
        place: of the client.
        verifier: of the server's messages; None: none is verified.
    """
    table = {
        "directory": str(place.directory.resolve()),
        "client": place.client,
        "world": None if place.world is None else str(place.world.resolve()),
        "plugins": [str(plugin.resolve()) for plugin in place.plugins],
        "watch": place.watch,
        "ca": None if verifier is None else str(verifier.ca.resolve()),
        "recipient": "" if verifier is None else verifier.recipient.hex(),
    }
    path.unlink(missing_ok=True)  # it may have other permissions
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(table, file)


def read_place() -> tuple[ClientPlace, Verifier | None]:
    """Read the file that the environment names.

    Raises:
        UserError: the variable is not set, or the file cannot be read.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        raise UserError(f"{VARIABLE} names no file: this runs only below `fedkl join`")
    try:
        table = json.loads(Path(name).read_text(encoding="utf-8"))
        ca, recipient = table["ca"], bytes.fromhex(table["recipient"])
        place = ClientPlace(
            Path(table["directory"]),
            int(table["client"]),
            None if table["world"] is None else Path(table["world"]),
            tuple(Path(plugin) for plugin in table["plugins"]),
            int(table["watch"]),
        )
        return place, None if ca is None else Verifier(Path(ca), recipient)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the file that {VARIABLE} names cannot be read: {error}") from error
