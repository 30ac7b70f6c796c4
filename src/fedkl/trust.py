"""Plugins that this account has agreed to run.

A plugin is code. Whoever makes a run names its plugins, and so agrees to them; a run that came
from somebody else names plugins, too, and must not run them just because it is looked at. So the
contents of plugins are remembered by their checksum, and others need to be agreed to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fedkl.errors import UserError
from fedkl.plugins import sha256_of
from fedkl.runs import files


def remember(plugins: Iterable[str]) -> None:
    """Agrees to run these files as they are now.

    Raises:
        UserError: one cannot be read, or it cannot be remembered.
    """
    new = {sha256_of(Path(plugin)) for plugin in plugins} - _trusted()
    if not new:
        return
    path = _file()
    with files.explain_os_errors("write", path):
        files.make_directory(path.parent, 0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            files.write_all(descriptor, "".join(f"{sha256}\n" for sha256 in new).encode())
        finally:
            os.close(descriptor)


def require(plugins: Iterable[str], run: Path, given: bool = False) -> None:
    """Sees to it that a run's plugins may be run.

    Args:
        plugins: the files that its config names.
        run: its directory.
        given: whether somebody has just agreed to them.

    Raises:
        UserError: nobody has agreed to one of them; the sentence shows which.
    """
    plugins = list(plugins)
    if given:
        return remember(plugins)
    known = _trusted() if plugins else set()
    checksums = {plugin: sha256_of(Path(plugin)) for plugin in plugins}
    if unknown := [f"{p} (sha256 {s[:16]})" for p, s in checksums.items() if s not in known]:
        raise UserError(
            f"{run} runs code that you have not agreed to: {', '.join(unknown)}; "
            "look at it, then say --trust-plugins"
        )


def _trusted() -> set[str]:
    path = _file()
    with files.explain_os_errors("read", path):
        try:
            return set(path.read_text(encoding="ascii", errors="replace").split())
        except FileNotFoundError:
            return set()


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fedkl" / "trusted-plugins"
