"""Keys that change while a federation is served: revoked, made anew, and certificates that expire.

Flower's server follows the folder by itself (`entry`): it refuses a key that is gone, and shows the
new certificate. This is what `fedkl serve` does meanwhile.
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
"""Seconds between two warnings of the same certificate."""


class KeyRotation:
    """Follows a folder of keys. `poll` does all of it."""

    def __init__(
        self, folder: Path, link: SuperLinkConnection, fleet: Fleet, signer: Signer, status: FleetStatus,
        notify: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Args:
        folder: as `fedkl keys` makes it.
        link: where clients' keys are registered.
        fleet: whose nodes are known by them.
        signer: signs with the server's.
        status: says until when the server's certificate is valid.
        tell: is told in a line what has changed.
        """
        self._folder = folder
        self._link, self._fleet, self._signer, self._status = link, fleet, signer, status
        status.expires = keys.expiry(folder / "server.crt")
        self._notify = notify
        self._watch = keys.KeyWatch(folder)
        self._warned = time.monotonic()

    def poll(self) -> None:
        """Takes the keys as they are, if they have changed; those that cannot be used are said, and
        what they would replace stays."""
        if time.monotonic() > self._warned + WARNING:
            self._warned = time.monotonic()
            for warning in checks.expiring(self._folder):
                self._notify(f"warning: {warning}")
        try:
            if not self._watch.changed():
                return
            # Before all else: a key that is gone is nobody's, whatever else is wrong.
            changed = self._fleet.rekey(keys.public_keys(self._folder, may_be_none=True))
            self._signer.reload()
            self._status.expires = keys.expiry(self._folder / "server.crt")
            self._link.register()
        except UserError as error:
            self._notify(f"the keys have changed and cannot be used as they are: {error}")
            return
        whose = f" of clients {', '.join(map(str, changed))}" if changed else " of the server"
        self._notify(f"the keys{whose} have changed")
