"""What a client tells others of what went wrong on it."""

from __future__ import annotations

import re

_PATH = re.compile(r"(?<![\w/])[~.]{0,2}/[^\s'\"`:,;)]+")


def without_paths(reason: str) -> str:
    """What a server may read: where things are on this machine is nobody's business."""
    return _PATH.sub("(a path)", reason)
