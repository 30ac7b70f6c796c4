"""Lets Flower run no app but ours.

Whoever reaches the port of Flower's server can submit an app, and Flower runs it, on the server and
on every client. Ours is a file that only names modules of this package, so what an app brings along
can be compared with it before anything of it is looked at by Flower.
"""

from __future__ import annotations

import importlib
import io
import shlex
import sys
import tomllib
import zipfile
import zlib
from pathlib import Path
from typing import Any

from fedkl.io import files

APP = Path(__file__).parent / "app" / "pyproject.toml"
MAX_APP_BYTES = 1 << 20
"""Bytes of an app, packed or not; ours has a thousand."""
MODULES = {
    "flwr-serverapp": "flwr.superlink.runtime.run_serverapp",
    "flwr-clientapp": "flwr.supernode.runtime.run_clientapp",
}
"""Flower's commands that run an app, and where each gets it from."""
INSTALL = "install_from_fab"
_CONTENT, _PROJECT = ".info/CONTENT", "pyproject.toml"


class ForeignAppError(Exception):
    """An app that is not run, and why."""


def check(app: bytes) -> None:
    """Whether an app is ours.

    Args:
        app: as Flower packs it (a FAB).

    Raises:
        ForeignAppError: it is another one.
    """
    if len(app) > MAX_APP_BYTES:
        raise ForeignAppError(f"it has {len(app)} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(app)) as packed:
            # A list: a name that is there twice is one too many.
            names = sorted(packed.namelist())
            if names != [_CONTENT, _PROJECT]:
                raise ForeignAppError("it brings files along")
            if packed.getinfo(_PROJECT).file_size > MAX_APP_BYTES:
                raise ForeignAppError("its settings are too long")
            project = tomllib.loads(packed.read(_PROJECT).decode())
    except (
        zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError,
        RecursionError,
    ) as error:  # fmt: skip
        raise ForeignAppError("it cannot be read") from error
    if project != tomllib.loads(APP.read_text(encoding="utf-8")):
        raise ForeignAppError("its settings are not those of this fedkl")


def guard(command: str) -> None:
    """From now on a command of Flower's refuses in this process, and in what is forked from it, to
    run any app but ours.

    Args:
        command: `flwr-serverapp` or `flwr-clientapp`.

    Raises:
        RuntimeError: this Flower is another one than we know, and would not ask us.
    """
    module: Any = importlib.import_module(MODULES[command])
    install = getattr(module, INSTALL, None)
    if not callable(install):
        raise RuntimeError(f"{command} of this version of Flower cannot be kept from foreign apps")

    def install_ours(app: Any, *arguments: Any, **options: Any) -> Any:
        try:
            check(bytes(app))
        except ForeignAppError as error:
            print(f"fedkl: an app that is not fedkl's was not run: {error}", flush=True)
            raise
        return install(app, *arguments, **options)

    setattr(module, INSTALL, install_ours)


def write_command(folder: Path, command: str) -> Path:
    """Writes a guarded command under its own name, to be found on a PATH.

    What starts apps finds them by their bare names, and starts more than those that we know
    (`flwr-agentapp`, `flwr-simulation`): a PATH that is this folder alone has no other.

    Args:
        folder: for the command; made if it is not there.
        command: `flwr-serverapp` or `flwr-clientapp`.

    Returns:
        The folder.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = shlex.join([sys.executable, "-P", "-m", "fedkl.network.flower.entry", command])
    script = f'#!/bin/sh\nexec {line} "$@"\n'
    files.write_atomically(folder / command, script.encode(), 0o700)
    return folder
