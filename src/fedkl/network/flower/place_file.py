"""How a process that Flower starts learns where its client lives: by a file that we name to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.network.client_process import Place
from fedkl.network.signatures import Verifier

VARIABLE = "FEDKL_PLACE"
"""Of the environment; it names the file."""


def write_place(path: Path, place: Place, verifier: Verifier | None) -> None:
    """Writes a file that only this user can read.

    Args:
        path: of the file.
        place: where the client lives.
        verifier: knows what is from its server; None: everything is taken for it.
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
    path.unlink(missing_ok=True)  # whose permissions may be others
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(table, file)


def read_place() -> tuple[Place, Verifier | None]:
    """The place that the environment names, and what knows its server.

    Raises:
        UserError: it names none, or no such file.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        raise UserError(f"{VARIABLE} names no file: this runs only below `fedkl join`")
    try:
        table = json.loads(Path(name).read_text(encoding="utf-8"))
        ca, recipient = table["ca"], bytes.fromhex(table["recipient"])
        place = Place(
            Path(table["directory"]),
            int(table["client"]),
            None if table["world"] is None else Path(table["world"]),
            tuple(Path(plugin) for plugin in table["plugins"]),
            int(table["watch"]),
        )
        return place, None if ca is None else Verifier(Path(ca), recipient)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the file that {VARIABLE} names cannot be read: {error}") from error
