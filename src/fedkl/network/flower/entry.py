"""Run a command of Flower's: `python -m fedkl.network.flower.entry COMMAND [ARG ...]`.

It is the command's own function, with what we add to it: one that runs apps runs no other than ours
(`app_allowlist`), Flower's server is guarded (`api_guard`), and all others have the secret by which
it knows them (`secret`). With `--parent=PID` before it, the command ends with that process. The
command `register-keys NAME=FILE ...` is ours: it registers clients' public keys in one process,
because importing Flower takes long.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.core.errors import UserError
from fedkl.core.processes import die_with
from fedkl.io import files
from fedkl.network import keys
from fedkl.network.flower import app_allowlist, secret

if TYPE_CHECKING:
    from fedkl.network.flower import api_guard

SERVER, REGISTER = "flower-superlink", "register-keys"
PARENT = "--parent="
CONNECTION = "fedkl"
"""Name of the SuperLink in Flower's settings."""
_MARK = "\x1d"
"""Character before each name in the output of `register_keys`."""
_REGISTERED = "[code: 23]"
"""Flower's error for a key that is registered already."""
KEYS_VARIABLE, ANSWER_VARIABLE = "FEDKL_KEYS", "FEDKL_ANSWER"
"""Environment variables: the folder with the keys of all clients (unset: no key is needed), and the
bytes that an answer may have."""
POLL_INTERVAL = 2.0
"""Seconds between two checks for changed keys."""
COMMAND = (sys.executable, "-P", "-m", "fedkl.network.flower.entry")
"""Start of a command line; the name of a command of Flower's comes next."""


def main(arguments: list[str]) -> None:
    """Run a command."""
    if arguments[0].startswith(PARENT):
        die_with(int(arguments[0].removeprefix(PARENT)))
        arguments = arguments[1:]
    name = arguments[0]
    if name in app_allowlist.MODULES:
        app_allowlist.guard(name)
    if name == SERVER:
        _guard_server()
    else:
        secret.attach()
    if name == REGISTER:
        register_keys(arguments[1:])
        return
    sys.argv = arguments
    load(name)()


def load(name: str) -> Callable[[], object]:
    """Return the function of a command of Flower's."""
    (found,) = entry_points(group="console_scripts", name=name)
    return found.load()


def write_command(folder: Path, command: str) -> Path:
    """Write a guarded command under its own name into a folder for PATH.

    Flower finds commands that run apps by their bare names, also others than these
    (`flwr-agentapp`, `flwr-simulation`): with this folder as all of PATH it finds no other.

    Args:
        folder: for the command; made if it is missing.
        command: `flwr-serverapp` or `flwr-clientapp`.

    Returns:
        The folder.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = shlex.join([*COMMAND, command])
    script = f'#!/bin/sh\nexec {line} "$@"\n'
    files.write_atomically(folder / command, script.encode(), 0o700)
    return folder


def register_keys(arguments: Sequence[str]) -> None:
    """Register public keys, each given as `NAME=FILE`; `registration_errors` reads the output."""
    flwr = load("flwr")
    for argument in arguments:
        name, _, file = argument.partition("=")
        print(f"{_MARK}{name}", flush=True)
        sys.argv = ["flwr", "supernode", "register", file, CONNECTION, "--name", name]
        sys.argv += ["--format", "json"]
        with contextlib.suppress(SystemExit):  # whose code is 0 also if it failed
            flwr()
        sys.stdout.flush()


def registration_errors(output: str) -> dict[str, str]:
    """Return the errors in the output of `register_keys`, by name; a known key is no error.

    >>> registration_errors('\\x1dclient-0\\n{"success": true}\\n\\x1dclient-1\\n{"success": fal')
    {'client-1': '{"success": fal'}
    """
    found = {}
    for part in output.split(_MARK)[1:]:
        name, _, text = part.partition("\n")
        if reason := _registration_error(text):
            found[name] = reason
    return found


def _registration_error(text: str) -> str:
    try:
        result = json.loads(text)
        if result["success"] or _REGISTERED in result["error-message"]:
            return ""
        text = str(result["error-message"])
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split()) or "Flower said nothing"


def _guard_server() -> None:
    from fedkl.network.flower import api_guard

    folder = os.environ.get(KEYS_VARIABLE)
    known = None if folder is None else {*keys.public_keys(Path(folder)).values()}
    paths = api_guard.WITHOUT_KEYS if known is None else api_guard.FLEET
    password, largest = secret.read(), int(os.environ[ANSWER_VARIABLE])
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
    """Reload clients' keys and the server's certificate whenever they change."""
    watch = keys.KeyWatch(folder)
    while True:
        time.sleep(POLL_INTERVAL)
        try:
            if not watch.changed():
                continue
            known = {*keys.public_keys(folder, may_be_none=True).values()}
            for guard in guards:
                guard.rekey(known)
            for context in contexts:
                context.load_cert_chain(folder / "server.crt", folder / "server.key", password="")
        except (UserError, OSError) as error:  # halfway through a change; it is tried again
            print(f"fedkl: the keys cannot be used as they are now: {error}", flush=True)
        else:
            print("fedkl: the keys have changed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
