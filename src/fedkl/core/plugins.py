"""Plugins: Python files of users, which register what they define.

The processes of simulators load them, too, so nothing of JAX is imported here.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType

from fedkl.core.errors import UserError

_loaded: dict[Path, int] = {}
"""Plugins that have run, in that order, and when they had been changed last."""


def module_of(path: Path) -> str:
    """The name of the module that a plugin becomes."""
    # Two plugins may have the same name, in two folders.
    folder = hashlib.sha256(bytes(path.resolve().parent)).hexdigest()[:8]
    return f"fedkl_plugin_{path.stem}_{folder}"


def load_plugin(path: Path, module: str | None = None) -> None:
    """Run a user's Python file, which registers what it defines.

    Args:
        path: the file.
        module: the module's name where the file is a copy of one elsewhere, so that what is pickled
            in one place is found in the other; None: `module_of` the path.

    Raises:
        UserError: it cannot be read, or is not Python. What the file itself raises is its author's
            to see.
    """
    source = _read(path)
    changed = path.stat().st_mtime_ns
    if _loaded.get(path.resolve()) == changed:
        return
    name = module or module_of(path)
    spec = spec_from_file_location(name, path, loader=_Source(name, path, source))
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    # Where dataclasses look up annotations that `from __future__ import annotations` made strings.
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    _loaded[path.resolve()] = changed


class _Source(SourceFileLoader):
    """A loader of what the file says: compiled code beside it may be another person's."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        super().__init__(name, str(path))
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        try:
            return self.source_to_code(self._source, self.path)
        except SyntaxError as error:
            line = f", line {error.lineno}" if error.lineno else ""
            raise UserError(f"the plugin {self.path}{line}: {error.msg}") from error


def sha256_of(path: Path) -> str:
    """The checksum of a plugin.

    Raises:
        UserError: it cannot be read.
    """
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise UserError(f"the plugin {path} is not a file")
    if path.suffix != ".py":
        raise UserError(f"the plugin {path} is not a Python file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"the plugin {path} cannot be read: {error.strerror}") from error


def loaded_plugins() -> tuple[str, ...]:
    """The plugins that this process has run, as far as they are still there."""
    return tuple(str(path) for path in _loaded if path.is_file())
