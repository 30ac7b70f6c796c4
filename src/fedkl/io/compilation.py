"""The persistent compilation cache: a second run of anything compiles nothing again."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any, TextIO

import jax

from fedkl.io.files import cache_folder

_DAMAGED = re.compile(r"Error reading persistent compilation cache entry for '(.*?)'")
_said: set[str] = set()


def enable_cache() -> None:
    """Let JAX keep compiled code between processes.

    It goes to the cache folder; `JAX_COMPILATION_CACHE_DIR`, or a folder that was given to
    `jax.config`, is JAX's own and wins. Entries that are damaged are removed when they are met, and
    so made again: JAX itself would warn of them for ever.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        _set("jax_compilation_cache_dir", str(cache_folder()))
    # Small functions count too: a command is made of many of them.
    _set("jax_persistent_cache_min_compile_time_secs", 0.0)
    _set("jax_persistent_cache_min_entry_size_bytes", -1)
    if not isinstance(warnings.showwarning, _Replacing):
        warnings.showwarning = _Replacing(warnings.showwarning)


class _Replacing:
    """Display of warnings as before, but for those of a damaged entry, which is removed."""

    def __init__(self, show: Any) -> None:
        self._show = show

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not (damaged := _DAMAGED.match(str(message))):
            self._show(message, category, filename, lineno, file, line)
            return
        # JAX says which function it was, which is how the names of its entries begin.
        _remove(damaged[1])


def _remove(function: str) -> None:
    folder = Path(str(jax.config.values["jax_compilation_cache_dir"]))
    for entry in folder.iterdir():
        if entry.name.startswith(f"{function}-") and entry.is_file():
            entry.unlink(missing_ok=True)
    if not _said:
        print(
            f"fedkl: warning: the compilation cache in {folder} was damaged; what was is compiled "
            "again and replaced",
            file=sys.stderr,
        )
    _said.add(function)


def _set(name: str, value: object) -> None:
    jax.config.update(name, value)  # type: ignore[no-untyped-call]  # JAX's own is unannotated
