"""The persistent compilation cache: a second run of anything compiles nothing again."""

from __future__ import annotations

import os

import jax

from fedkl.caching import cache_folder


def enable_cache() -> None:
    """Lets JAX keep compiled code between processes.

    It goes to the cache folder; `JAX_COMPILATION_CACHE_DIR`, if set, is JAX's own and wins.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _set("jax_compilation_cache_dir", str(cache_folder()))
    # Small functions count too: a command is made of many of them.
    _set("jax_persistent_cache_min_compile_time_secs", 0.0)
    _set("jax_persistent_cache_min_entry_size_bytes", -1)


def _set(name: str, value: object) -> None:
    jax.config.update(name, value)  # type: ignore[no-untyped-call]  # JAX's own is unannotated
