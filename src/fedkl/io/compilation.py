"""The persistent compilation cache: a second run of anything compiles nothing again."""

from __future__ import annotations

import contextlib
import re
import warnings
from pathlib import Path
from typing import Any, TextIO

import jax

from fedkl.core.text import print_warning
from fedkl.io.user_folders import cache_folder, usable_cache

_DAMAGED = re.compile(r"Error reading persistent compilation cache entry for '(.*?)'")
_NOT_WRITTEN = re.compile(r"Error writing persistent compilation cache entry for ")
_said: set[str] = set()


def enable_cache() -> None:
    """Let JAX keep compiled code between processes.

    It goes to the cache folder; `JAX_COMPILATION_CACHE_DIR`, or a folder that was given to
    `jax.config`, is JAX's own and wins, if it can be written. Entries that are damaged are removed
    when they are met, and so made again: JAX itself would warn of them for ever.
    """
    given = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if given is None:
        _set("jax_compilation_cache_dir", str(cache_folder()))
    elif "://" not in given:  # else it is in a bucket
        _set("jax_compilation_cache_dir", str(usable_cache(Path(given))))
    # Small functions count too: a command is made of many of them.
    _set("jax_persistent_cache_min_compile_time_secs", 0.0)
    _set("jax_persistent_cache_min_entry_size_bytes", -1)
    if not isinstance(warnings.showwarning, _Replacing):
        warnings.showwarning = _Replacing(warnings.showwarning)


class _Replacing:
    """Display of warnings as before, but for those of the cache: a damaged entry is removed, and
    one that cannot be written is no reason to stop."""

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
        if damaged := _DAMAGED.match(str(message)):
            # JAX says which function it was, which is how the names of its entries begin.
            _remove(damaged[1])
            _say_once("was damaged; what was is compiled again and replaced")
        elif _NOT_WRITTEN.match(str(message)):
            _say_once("cannot be written any more; what is new is compiled again next time")
        else:
            self._show(message, category, filename, lineno, file, line)


def _folder() -> Path:
    return Path(str(jax.config.values["jax_compilation_cache_dir"]))


def _remove(function: str) -> None:
    # A folder that is gone, or that is another user's, holds nothing that could be mended.
    with contextlib.suppress(OSError):
        for entry in _folder().iterdir():
            if entry.name.startswith(f"{function}-") and entry.is_file():
                entry.unlink(missing_ok=True)


def _say_once(what: str) -> None:
    if what not in _said:
        print_warning(f"the compilation cache in {_folder()} {what}")
    _said.add(what)


def _set(name: str, value: object) -> None:
    jax.config.update(name, value)  # type: ignore[no-untyped-call]  # JAX's own is unannotated
