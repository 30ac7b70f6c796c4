"""Runs a command of Flower's: `python -m fedkl.network.flower.entry COMMAND [ARG ...]`.

It is the command's own function, with what we add to it: one that runs apps runs no other than ours
(`only_ours`), Flower's server is guarded (`api_guard`), and all others have the secret by which it
knows them (`secret`).
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

from fedkl.network import keys
from fedkl.network.flower import only_ours, secret

SERVER = "flower-superlink"
KEYS = "FEDKL_KEYS"
"""Of the environment: the folder with the keys of all clients. Without it no key is needed."""
COMMAND = (sys.executable, "-P", "-m", "fedkl.network.flower.entry")
"""What a command of Flower's is the next word of."""


def main(arguments: list[str]) -> None:
    """Runs a command."""
    name = arguments[0]
    if name in only_ours.MODULES:
        only_ours.guard(name)
    if name == SERVER:
        _guard_server()
    else:
        secret.attach()
    (command,) = entry_points(group="console_scripts", name=name)
    sys.argv = arguments
    command.load()()


def _guard_server() -> None:
    from fedkl.network.flower import api_guard

    folder = os.environ.get(KEYS)
    known = None if folder is None else {*keys.public_keys(Path(folder)).values()}
    paths = api_guard.WITHOUT_KEYS if known is None else api_guard.FLEET
    password = secret.read()
    api_guard.install(lambda app: api_guard.Guard(app, password, paths, known))


if __name__ == "__main__":
    main(sys.argv[1:])
