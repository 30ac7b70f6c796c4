"""The allowlist of apps that Flower may run: only ours.

A user who reaches the port of Flower's server can submit an app, and Flower runs it, on the server
and on every client. Ours is a file that only names modules of this package, so an app is compared
with it before Flower reads anything of it.
"""

from __future__ import annotations

import importlib
import io
import tomllib
import zipfile
import zlib
from pathlib import Path
from typing import Any

APP = Path(__file__).parent / "app" / "pyproject.toml"
MAX_APP_BYTES = 1 << 20
"""Bytes of an app, packed or not; ours has a thousand."""
MODULES = {
    "flwr-serverapp": "flwr.superlink.runtime.run_serverapp",
    "flwr-clientapp": "flwr.supernode.runtime.run_clientapp",
}
"""Flower's commands that run an app, and the module in which each installs it."""
INSTALL = "install_from_fab"
_CONTENT, _PROJECT = ".info/CONTENT", "pyproject.toml"


class ForeignAppError(Exception):
    """An app that is not ours."""


def check(app: bytes) -> None:
    """Check that an app is ours.

    Args:
        app: in Flower's format (a FAB).

    Raises:
        ForeignAppError: it is not.
    """
    if len(app) > MAX_APP_BYTES:
        raise ForeignAppError(f"it has {len(app)} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(app)) as packed:
            # A list: a name may be in the archive twice.
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
    """Make a command of Flower's refuse other apps, in this process and its forks.

    Args:
        command: `flwr-serverapp` or `flwr-clientapp`.

    Raises:
        RuntimeError: this version of Flower cannot be guarded.
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
