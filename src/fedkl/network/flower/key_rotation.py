"""Key rotation while a federation is served: revoked keys, new keys, expiring certificates.

Flower's server watches the folder itself (`entry`): it refuses a key that is gone, and shows the
new certificate. This is the part of `fedkl serve`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.network import checks, keys
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.superlink import SuperLinkConnection
from fedkl.network.signatures import Signer
from fedkl.network.status import FleetStatus

WARNING = 86_400.0
"""Seconds between two warnings about the same certificate."""


class KeyRotation:
    """Watcher of a folder of keys; `poll` does all of it."""

    def __init__(
        self,
        folder: Path,
        link: SuperLinkConnection,
        fleet: Fleet,
        signer: Signer,
        status: FleetStatus,
        notify: Callable[[str], None],
    ) -> None:
        """Args:
        folder: as `fedkl keys` makes it.
        link: with which clients' keys are registered.
        fleet: knows nodes by these keys.
        signer: signs with the server's key.
        status: has the end of the server's certificate.
        notify: is called with a line about a change.
        """
        self._folder = folder
        self._link, self._fleet, self._signer, self._status = link, fleet, signer, status
        status.expires = keys.expiry(folder / "server.crt")
        self._notify = notify
        self._watch = keys.KeyWatch(folder)
        self._warned = time.monotonic()

    def poll(self) -> None:
        """Reload the keys if they have changed; keep the old ones if the new cannot be used."""
        if time.monotonic() > self._warned + WARNING:
            self._warned = time.monotonic()
            for warning in checks.expiring(self._folder):
                self._notify(f"warning: {warning}")
        try:
            if not self._watch.changed():
                return
            # Before all else: a revoked key must not count, whatever else is wrong.
            changed = self._fleet.rekey(keys.public_keys(self._folder, may_be_none=True))
            self._signer.reload()
            self._status.expires = keys.expiry(self._folder / "server.crt")
            self._link.register()
        except UserError as error:
            self._notify(f"the keys have changed and cannot be used as they are: {error}")
            return
        whose = f" of clients {', '.join(map(str, changed))}" if changed else " of the server"
        self._notify(f"the keys{whose} have changed")
