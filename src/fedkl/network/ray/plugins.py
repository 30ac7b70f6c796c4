"""Plugins on a worker: they are sent as text, because other machines do not have the user's files.

A worker writes them to its cache folder, where the processes of its simulators find them, too.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedkl.core.errors import UserError
from fedkl.core.plugins import load_plugin, module_of
from fedkl.io.files import cache_folder, explain_os_errors, write_atomically


class Plugin(NamedTuple):
    """A plugin as it is sent."""

    name: str
    """Of its file."""
    text: bytes
    module: str
    """Its name where it was read: what is pickled on one side is found on the other."""


def read_plugins(paths: Iterable[str]) -> tuple[Plugin, ...]:
    """The plugins of a config.

    Raises:
        UserError: a file cannot be read.
    """
    found = []
    for path in map(Path, paths):
        with explain_os_errors("read", path):
            found.append(Plugin(path.name, path.read_bytes(), module_of(path)))
    return tuple(found)


def install_plugins(plugins: Sequence[Plugin]) -> list[str]:
    """Runs plugins on a worker, and returns where they are there: a config's `plugins`.

    Raises:
        UserError: one does not run there.
    """
    paths = []
    for plugin in plugins:
        path = _keep(plugin)
        try:
            load_plugin(path, plugin.module)
        except Exception as error:  # it is somebody's code
            raise UserError(
                f"the plugin {plugin.name} fails on the worker {platform.node()}: "
                f"{type(error).__name__}: {error}"
            ) from error
        paths.append(str(path))
    return paths


def _keep(plugin: Plugin) -> Path:
    digest = hashlib.sha256(plugin.module.encode() + plugin.text).hexdigest()
    path = cache_folder() / "plugins" / digest[:16] / plugin.name
    with explain_os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != plugin.text:
            write_atomically(path, plugin.text)
    return path
