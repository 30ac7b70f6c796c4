"""The settings of a run that is served over a network: `serving.toml` in its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from fedkl.core.errors import UserError
from fedkl.io import files, strict_toml
from fedkl.network.messages import check_federation
from fedkl.network.wire import MessageError
from fedkl.training import plugin_consent
from fedkl.training.directory import SERVING

HOST = "127.0.0.1"


class ServeSettings(NamedTuple):
    """Address, keys and clients of a federation."""

    host: str
    port: int
    """0: any that is free."""
    keys: Path | None
    """Folder as `fedkl keys` makes it; None: nothing is encrypted, any client may join."""
    local: int
    """Number of clients that are started on this machine, with new keys at every start."""
    attached: bool
    """True if the SuperLink is not started by `fedkl serve`."""
    wait: float
    """Seconds to wait for clients if too few are connected."""
    federation: str
    """Name, as `messages.new_federation` makes it."""

    @classmethod
    def read(cls, run: Path) -> ServeSettings:
        """Read the settings of a run.

        Raises:
            UserError: the file cannot be read, or is damaged.
        """
        path = run / SERVING
        table = strict_toml.read(path)
        try:
            return _checked(table)
        except (ValueError, MessageError) as error:
            raise UserError(f"{path} is damaged: {error}") from error

    def write(self, run: Path) -> None:
        """Write the settings of a run, and record the user's consent to serve it."""
        table = self._asdict()
        table["keys"] = "" if self.keys is None else str(self.keys.resolve())
        files.write_atomically(run / SERVING, tomli_w.dumps(table).encode())
        plugin_consent.remember_served(run)


def _checked(table: dict[str, Any]) -> ServeSettings:
    """Return the settings in a table.

    Raises:
        ValueError, MessageError: they are not valid.
    """
    kinds = {
        "host": str, "port": int, "keys": str, "local": int, "attached": bool, "wait": float,
        "federation": str,
    }  # fmt: skip
    if table.keys() != kinds.keys():
        raise ValueError(f"it has {', '.join(table) or 'nothing':.200}")
    for name, kind in kinds.items():
        if type(table[name]) is not kind:
            raise ValueError(f"{name} is {table[name]!r:.40}")
    if not 0 <= table["port"] <= 65535:
        raise ValueError(f"port is {table['port']}")
    # Local clients are served on loopback only, so no consent is needed (`plugin_consent`).
    alone = (table["host"], table["keys"], table["attached"]) == (HOST, "", False)
    if table["local"] < 0 or (table["local"] and not alone):
        raise ValueError(f"local is {table['local']}")
    check_federation(table["federation"])
    return ServeSettings(**table | {"keys": Path(table["keys"]) if table["keys"] else None})
