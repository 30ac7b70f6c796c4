"""The processes of actors that this process has on a Ray of its own."""

from __future__ import annotations

import os
from pathlib import Path


def actor_processes() -> list[int]:
    """Their numbers."""
    return [pid for pid in _descendants(os.getpid()) if _command(pid).startswith("ray::Clients")]


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):  # it has ended meanwhile
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found, look = [], [root]
    while look:
        found += (new := children.get(look.pop(), []))
        look += new
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
