"""The origin of a checkpoint, and what of it has changed since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedkl.core.errors import UserError

_NOT_COMPARED = ("federation.rounds", "plugins")
"""A run may be made longer, and its plugins may lie elsewhere: their contents are compared."""
_LONG = 200
"""Characters of a setting's value beyond which only its checksum is kept."""
_SHOWN = 3


@dataclass(frozen=True)
class Origin:
    """The config, plugins, clients and versions that a checkpoint was made with.

    Attributes:
        config: the settings by dotted name, without those that are not compared.
        rounds: as many as the config asked for.
        plugins: the names of the plugins, with their checksums.
        params: a checksum of what makes the clients' worlds their own.
        history: who made it: the round from which on, the versions, and the changes that were
            accepted then.
        log: what the log said then (`metrics.LogLine.content_digest`).
    """

    config: dict[str, str]
    rounds: int
    plugins: list[list[str]]
    params: str
    history: list[dict[str, Any]]
    log: str = ""

    def encode(self) -> dict[str, str]:
        """As the metadata of a checkpoint has it."""
        return {f.name: json.dumps(getattr(self, f.name)) for f in fields(self)}

    def differences(self, now: Origin) -> list[str]:
        """Return what has changed of the things that results depend on, in a few words each."""
        found = differences(self.config, now.config)
        if [sha256 for _, sha256 in self.plugins] != [sha256 for _, sha256 in now.plugins]:
            names = {name for name, _ in _only_in_one(self.plugins, now.plugins)}
            found.append(f"plugins are not as they were ({', '.join(sorted(names)) or 'order'})")
        if not found and self.params != now.params:
            found.append("clients' worlds are drawn differently")
        return found

    def continued(self, now: Origin, round: int, changes: Sequence[str]) -> Origin:
        """The origin of what `now` makes of a checkpoint of this origin."""
        entry = now.history[-1] | {"round": round, "changes": list(changes)}
        same = self.history and self.history[-1]["versions"] == entry["versions"]
        history = self.history if same and not changes else [*self.history, entry]
        return replace(now, history=history, log=self.log)

    def newer_versions(self, now: Origin) -> str:
        """Return the packages that have other versions now, in a few words; empty if none."""
        before = self.history[-1]["versions"] if self.history else {}
        return ", ".join(differences(before, now.history[-1]["versions"]))


def decode(saved: Mapping[str, str]) -> Origin | None:
    """The origin in a checkpoint's metadata; None if it carries none.

    Raises:
        ValueError: what it carries is not an origin.
    """
    if not saved:
        return None
    try:
        values = {f.name: json.loads(saved[f.name]) for f in fields(Origin)}
        origin = Origin(**values)
        _check(origin)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError("what it says of its origin is damaged") from error
    return origin


def settings_of(mapping: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that results depend on, by dotted name, as short texts.

    Example:
        >>> settings_of({"seed": 1, "federation": {"rounds": 9, "clients": 4}, "plugins": []})
        {'seed': '1', 'federation.clients': '4'}
    """
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        flat |= {f"{name}.{key}": item for key, item in inner} or {name: value}
    return {name: _brief(value) for name, value in flat.items() if name not in _NOT_COMPARED}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what has changed, in a few words each.

    Example:
        >>> differences({"seed": "1", "a": "2"}, {"seed": "3", "a": "2"})
        ['seed was 1, is 3']
    """
    return [
        f"{name} {_was(before.get(name), now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def refusal(run: Path, round: int, changes: Sequence[str]) -> UserError:
    """Of a run whose checkpoint was made with something else: what differs, and what to do."""
    return UserError(
        f"{run}: the checkpoint of round {round} was made with something else: {listed(changes)}; "
        "put it back, or accept the changes with --accept-changes (in Python accept_changes=True)"
    )


def listed(found: Sequence[str]) -> str:
    """The first few of several things, and how many more there are."""
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _brief(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONG else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _was(before: str | None, now: str | None) -> str:
    if before is None:
        return f"was not there, is {now}"
    return f"was {before}, is {'gone' if now is None else now}"


def _check(origin: Origin) -> None:
    kinds = [(origin.config, dict), (origin.plugins, list), (origin.history, list)]
    if not all(isinstance(value, kind) for value, kind in kinds) or type(origin.rounds) is not int:
        raise TypeError("settings are a table, rounds a number, plugins and history lists")
    texts = [*origin.config.items(), *origin.plugins, (origin.params, origin.log)]
    if not all(isinstance(text, str) for pair in texts for text in pair):
        raise TypeError("names and checksums are texts")
    if any(len(plugin) != 2 for plugin in origin.plugins):
        raise ValueError("a plugin is a name and a checksum")
    for entry in origin.history:
        numbers, texts_of = entry["versions"], entry["changes"]
        sensible = isinstance(numbers, dict) and isinstance(texts_of, list)
        if type(entry["round"]) is not int or not sensible:
            raise TypeError("an entry of the history is damaged")
        if not all(isinstance(text, str) for text in (*numbers.values(), *texts_of)):
            raise TypeError("an entry of the history is damaged")


def _only_in_one(some: list[list[str]], others: list[list[str]]) -> list[list[str]]:
    return [x for x in some if x not in others] + [x for x in others if x not in some]
