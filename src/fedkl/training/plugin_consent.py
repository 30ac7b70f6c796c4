"""Consent of this account to run code of plugins and modules of worlds, and to serve runs.

The user who makes a run names its plugins, and so agrees to them; a run that came from somebody
else names plugins, too, and must not run them just because it is looked at. So the contents of
plugins are remembered by their checksum, modules by their names, and others need to be agreed to.
So does a port that a run would open: `serving.toml` is remembered by its checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkl.config.config import Config, from_mapping
from fedkl.config.presets import strings
from fedkl.core.errors import UserError
from fedkl.core.plugins import sha256_of
from fedkl.io import files, strict_toml, user_folders
from fedkl.training import pretrained
from fedkl.training.directory import SERVING, RunDirectory

_FILE = "trusted-plugins"


class Code(NamedTuple):
    """Something that a config names and that is run, or how a run is served.

    Attributes:
        what: as people are shown it.
        mark: as it is remembered.
    """

    what: str
    mark: str


def code_of(config: Mapping[str, Any]) -> list[Code]:
    """Return the code that a config names: its plugins, and modules that its world is imported
    from.

    Raises:
        UserError: what it names are no files.
    """
    found = []
    for plugin in strings(config.get("plugins", []), "plugins"):
        checksum = sha256_of(Path(plugin))
        found.append(Code(f"{plugin} (sha256 {checksum[:16]})", checksum))
    found += [Code(f"the module {name}", f"module:{name}") for name in modules_of(config)]
    return found


def modules_of(config: Mapping[str, Any]) -> list[str]:
    """The modules that a config's world is imported from, but for those of the libraries of worlds.

    Example:
        >>> modules_of({"world": {"name": "gymnasium", "id": "my_robots:Arm-v0"}})
        ['my_robots']
        >>> modules_of({"world": {"name": "pettingzoo", "module": "pettingzoo.sisl.pursuit_v4"}})
        []
    """
    world = config.get("world")
    if not isinstance(world, Mapping):
        return []
    named = {"gymnasium": str(world.get("id", "")).rpartition(":")[0]}
    named["pettingzoo"] = str(world.get("module", ""))
    module = named.get(str(world.get("name")), "")
    return [module] if module and module.split(".")[0] not in named else []


def remember(config: Mapping[str, Any]) -> None:
    """Consent to run the code that a config names, as it is now.

    Raises:
        UserError: a plugin cannot be read, or it cannot be remembered.
    """
    _remember(code_of(config))


def remember_served(run: Path) -> None:
    """Consent to serve a run as its directory says now.

    Raises:
        UserError: that cannot be read, or it cannot be remembered.
    """
    _remember(served_as(run))


def _remember(code: Sequence[Code]) -> None:
    new = {one.mark for one in code} - (_trusted() if code else set())
    if not new:
        return
    path = user_folders.state_folder() / _FILE
    with files.explain_os_errors("write", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            files.write_all(descriptor, "".join(f"{mark}\n" for mark in sorted(new)).encode())
        finally:
            os.close(descriptor)


def agree(run: str | Path) -> None:
    """Consent to run the code that a run's config names, and to serve it, as it is now.

    Raises:
        UserError: it is not a run, or as `remember`.
    """
    directory = RunDirectory.open(Path(run))
    remember(directory.config())
    remember_served(directory.path)


def unknown(config: Mapping[str, Any]) -> list[str]:
    """The code that a config names and to which there is no consent, as it is shown."""
    return _unknown(code_of(config))


def _unknown(code: Sequence[Code]) -> list[str]:
    known = _trusted() if code else set()
    return [one.what for one in code if one.mark not in known]


def served_as(run: Path) -> list[Code]:
    """Return how a run is served, if it is: the port that it opens to others, or the server that it
    calls. Clients on this machine, with keys that are made anew, need no consent.

    Raises:
        UserError: the file cannot be read.
    """
    path = run / SERVING
    if not path.exists() or (table := strict_toml.read(path)).get("local"):
        return []
    where = f"{table.get('host')}:{table.get('port')}"
    how = "the SuperLink at" if table.get("attached") else "a port that is opened at"
    secured = f"with the keys in {keys}" if (keys := table.get("keys")) else "without TLS and keys"
    with files.explain_os_errors("read", path):
        checksum = hashlib.sha256(files.read_bytes(path)).hexdigest()
    return [Code(f"{how} {where}, {secured}", f"serving:{checksum}")]


def require_served(run: Path) -> None:
    """Require consent to serve a run as its directory says.

    Raises:
        UnknownCodeError: there is no consent to it; the sentence shows what it is.
    """
    if what := _unknown(served_as(run)):
        raise UnknownCodeError(
            f"{run} is served in a way that you have not agreed to: {what[0]}; if that is what you "
            f"want, agree by `fedkl check {shlex.quote(str(run))} --trust-plugins`"
        )


def require(config: Mapping[str, Any], run: Path) -> None:
    """Require consent to run the code that a run's config names.

    Raises:
        UnknownCodeError: there is no consent to some of it; the sentence shows which.
    """
    if what := unknown(config):
        raise UnknownCodeError(
            f"{run} runs code that you have not agreed to: {', '.join(what)}; look at it, then "
            f"agree by `fedkl check {shlex.quote(str(run))} --trust-plugins`"
        )


def of_run(run: RunDirectory) -> Config:
    """The config of a run, whose code is run only with consent.

    Raises:
        UserError: there is none, or the config is wrong.
    """
    values = run.config()
    require(values, run.path)
    return from_mapping(values, pretrained.of_run(run, values))


class UnknownCodeError(UserError):
    """Code or a port that this account has not agreed to."""


def _trusted() -> set[str]:
    marks: set[str] = set()
    for folder in user_folders.state_folders():
        path = folder / _FILE
        # Where there is no such file, there is no consent to anything.
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with files.explain_os_errors("read", path), absent:
            marks |= set(path.read_text(encoding="utf-8", errors="replace").split())
    return marks
