"""Runs a command of Flower's: `python -m fedkl.network.flower.entry COMMAND [ARG ...]`.

It is the command's own function, with what we add to it: one that runs apps runs no other than ours
(`app_allowlist`), Flower's server is guarded (`api_guard`), and all others have the secret by which
it knows them (`secret`).
"""

from __future__ import annotations

import os
import ssl
import sys
import threading
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.core.errors import UserError
from fedkl.network import keys
from fedkl.network.flower import app_allowlist, secret

if TYPE_CHECKING:
    from fedkl.network.flower import api_guard

SERVER = "flower-superlink"
KEYS, ANSWER = "FEDKL_KEYS", "FEDKL_ANSWER"
"""Of the environment: the folder with the keys of all clients, without which no key is needed; and
the bytes that an answer may have."""
LOOKING = 2.0
"""Seconds between two looks whether keys have changed."""
COMMAND = (sys.executable, "-P", "-m", "fedkl.network.flower.entry")
"""What a command of Flower's is the next word of."""


def main(arguments: list[str]) -> None:
    """Runs a command."""
    name = arguments[0]
    if name in app_allowlist.MODULES:
        app_allowlist.guard(name)
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
    password, largest = secret.read(), int(os.environ[ANSWER])
    guards: list[api_guard.Guard] = []
    contexts: list[ssl.SSLContext] = []

    def guard(app: api_guard.App) -> api_guard.Guard:
        guards.append(api_guard.Guard(app, password, paths, known, largest))
        return guards[-1]

    api_guard.install(guard, contexts.append)
    if folder is not None:
        watch = (Path(folder), guards, contexts)
        threading.Thread(target=_follow, args=watch, daemon=True).start()


def _follow(folder: Path, guards: list[api_guard.Guard], contexts: list[ssl.SSLContext]) -> None:
    """Takes keys and the server's certificate as they are, whenever they have changed."""
    watch = keys.Watch(folder)
    while True:
        time.sleep(LOOKING)
        try:
            if not watch.changed():
                continue
            known = {*keys.public_keys(folder, may_be_none=True).values()}
            for guard in guards:
                guard.rekey(known)
            for context in contexts:
                context.load_cert_chain(folder / "server.crt", folder / "server.key", password="")
        except (UserError, OSError) as error:  # halfway through a change; the next look tells
            print(f"fedkl: the keys cannot be used as they are now: {error}", flush=True)
        else:
            print("fedkl: the keys have changed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
