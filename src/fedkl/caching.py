"""Where things are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/fedkl`, usually `~/.cache/fedkl`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedkl"
