"""Plugins: Python files of users, which register what they define.

The processes of simulators load them, too, so nothing of JAX is imported here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from fedkl.errors import UserError

_loaded: dict[Path, int] = {}
"""Plugins that have run, in that order, and when they had been changed last."""


def module_of(path: Path) -> str:
    """The name of the module that a plugin becomes."""
    # Two plugins may have the same name, in two folders.
    folder = hashlib.sha256(bytes(path.resolve().parent)).hexdigest()[:8]
    return f"fedkl_plugin_{path.stem}_{folder}"


def load_plugin(path: Path, module: str | None = None) -> None:
    """Runs a user's Python file, which registers what it defines.

    Args:
        path: the file.
        module: the module's name where the file is a copy of one elsewhere, so that what is pickled
            in one place is found in the other; None: `module_of` the path.

    Raises:
        UserError: there is no such file. What the file itself raises is its author's to see.
    """
    if not path.is_file():
        raise UserError(f"the plugin {path} is not a file")
    changed = path.stat().st_mtime_ns
    if _loaded.get(path.resolve()) == changed:
        return
    spec = importlib.util.spec_from_file_location(module or module_of(path), path)
    if spec is None or spec.loader is None:
        raise UserError(f"the plugin {path} is not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    # Where dataclasses look up annotations that `from __future__ import annotations` made strings.
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    _loaded[path.resolve()] = changed


def sha256_of(path: Path) -> str:
    """The checksum of a plugin.

    Raises:
        UserError: it cannot be read.
    """
    if not path.is_file():
        raise UserError(f"the plugin {path} is not a file")
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"the plugin {path} cannot be read: {error.strerror}") from error


def loaded_plugins() -> tuple[str, ...]:
    """The plugins that this process has run, as far as they are still there."""
    return tuple(str(path) for path in _loaded if path.is_file())
