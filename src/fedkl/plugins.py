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


def load_plugin(path: Path) -> None:
    """Runs a user's Python file, which registers what it defines.

    Raises:
        UserError: there is no such file. What the file itself raises is its author's to see.
    """
    if not path.is_file():
        raise UserError(f"the plugin {path} is not a file")
    changed = path.stat().st_mtime_ns
    if _loaded.get(path.resolve()) == changed:
        return
    # Two plugins may have the same name, in two folders.
    folder = hashlib.sha256(bytes(path.resolve().parent)).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"fedkl_plugin_{path.stem}_{folder}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"the plugin {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look up annotations that `from __future__ import annotations` made strings.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    _loaded[path.resolve()] = changed


def loaded_plugins() -> tuple[str, ...]:
    """The plugins that this process has run, as far as they are still there."""
    return tuple(str(path) for path in _loaded if path.is_file())
