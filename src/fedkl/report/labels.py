"""The settings of the runs as the page shows them: what they share, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedkl.core.text import plain, short_keys


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested config into one mapping with dotted keys.

    A table that is the value of a world's setting, such as how a parameter is drawn, stays whole.

    Example:
        >>> flat({"seed": 1, "learner": {"d_local": 0.01}})
        {'seed': 1, 'learner.d_local': 0.01}
        >>> flat({"world": {"clients": {"gravity": {"uniform": [5, 15]}}}})
        {'world.clients.gravity': {'uniform': [5, 15]}}
    """
    entries: dict[str, Any] = {}
    for key, value in config.items():
        name = prefix + key
        whole = prefix.startswith(_OF_WORLD) and f"{name}." != _OF_CLIENTS
        if isinstance(value, Mapping) and not whole:
            entries |= flat(value, f"{name}.")
        else:
            entries[name] = value
    return entries


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the dotted keys that some config lacks, or that do not have the same value in all."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({shown(config, key) for config in configs}) > 1]


def shown(config: Mapping[str, Any], key: str) -> str:
    """Return the value of a dotted key as TOML would write it; empty if the config lacks it."""
    return json.dumps(config[key], default=str, sort_keys=True) if key in config else ""


_ALGORITHM, _WORLD = "algorithm.name", "world.name"
_OF_WORLD, _OF_CLIENTS = "world.", "world.clients."
_WORLD_SEED = "world_seed"
_NOMINAL = "nominal"
"""In place of the value of a parameter that a config is silent about."""
_NO_DIFFERENCE = ("seed", "preset", "plugins", "tuned_on", "checkpoint.")
"""Settings without influence on results, or that differ within a group; groups end in a dot."""
ALONE, CENTRALISED = REFERENCES = ("each alone", "centralised")
_LONG = 40
"""Characters of a value beyond which a label has its number instead."""


def telling(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that tell runs apart, beside the seed; as few as do.

    First those that say which task is learnt (`task_settings`). A setting that follows from those
    named before it is not named: a penalty that only one algorithm has follows from the algorithm.
    A setting that some configs lack, because an older version made them, tells nothing by that.

    Args:
        configs: as `flat` gives them.
    """
    tasks = task_settings(configs)
    keys = dict.fromkeys([_ALGORITHM, *(key for config in configs for key in config)])
    others = [key for key in keys if not _of_task(key) and not key.startswith(_NO_DIFFERENCE)]
    return [*tasks, *_splitting(others, configs, tasks)]


def task_settings(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that say which of several tasks a run has learnt, as few as do.

    A parameter of clients that a config is silent about is nominal, which is a value like others.

    Args:
        configs: as `flat` gives them.
    """
    keys = dict.fromkeys([_WORLD, *(key for config in configs for key in config)])
    return _splitting([key for key in keys if _of_task(key)], configs)


def _of_task(key: str) -> bool:
    return key.startswith(_OF_WORLD) or key == _WORLD_SEED


def _splitting(
    keys: Sequence[str], configs: Sequence[Mapping[str, Any]], given: Sequence[str] = ()
) -> list[str]:
    """Return those of some settings in which runs differ that all before them, and those that are
    given, do not tell apart."""
    groups = ["\n".join(_value(config, key) for key in given) for config in configs]
    chosen = []
    for key in keys:
        values = [_value(config, key) for config in configs]
        if _splits(groups, values, absent=key.startswith(_OF_CLIENTS)):
            chosen.append(key)
            groups = [f"{group}\n{value}" for group, value in zip(groups, values, strict=True)]
    return chosen


def _value(config: Mapping[str, Any], key: str) -> str:
    """Return a text that two configs share where the setting is the same: 5 is 5.0."""
    if not key.startswith(_OF_CLIENTS) or key not in config:
        return shown(config, key)
    return shown({key: _as_floats(config[key])}, key)


def _as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_floats(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_floats(entry) for entry in value]
    return float(value) if type(value) is int else value


def _splits(groups: Sequence[str], values: Sequence[str], absent: bool) -> bool:
    """Return True if some runs of a group have one value and some another.

    Args:
        groups: of each run.
        values: of each run; empty if it has none.
        absent: True if none is a value as well.
    """
    seen: dict[str, set[str]] = {}
    for group, value in zip(groups, values, strict=True):
        seen.setdefault(group, set()).add(value)
    return any(len(found if absent else found - {""}) > 1 for found in seen.values())


def reference(config: Mapping[str, Any]) -> str | None:
    """Return the name of the reference that a run is: one of `REFERENCES`, or None."""
    federation = config.get("federation")
    if not isinstance(federation, Mapping):
        return None
    if federation.get("personal") == "all":
        return ALONE
    pooled = federation.get("data") == "pooled" and federation.get("clients_per_round") == 1
    return CENTRALISED if pooled else None


class Label(NamedTuple):
    """The name of a run beside others."""

    text: str
    """In tables and figures: the algorithm, and what else sets it apart."""
    level: str
    """The part of it that says which task is learnt (see `task_settings`)."""
    method: str
    """All but that."""


def labels(configs: Sequence[Mapping[str, Any]]) -> list[Label]:
    """Label runs by their configs; those of a group have the same label.

    A reference differs from the others by design, so it is told apart from its like alone.

    Example:
        >>> configs = [{"algorithm": {"name": "fedkl", "d_global": d}, "seed": 1} for d in (1, 2)]
        >>> [label.text for label in labels(configs)]
        ['fedkl d_global=1', 'fedkl d_global=2']
    """
    entries = [flat(config) for config in configs]
    kinds = [reference(config) for config in configs]
    tasks = task_settings(entries)
    own = {
        kind: telling([e for e, other in zip(entries, kinds, strict=True) if other == kind])
        for kind in dict.fromkeys(kinds)
    }
    methods = {kind: [key for key in keys if not _of_task(key)] for kind, keys in own.items()}
    named = [*tasks, *(key for keys in methods.values() for key in keys if key != _ALGORITHM)]
    short = short_keys(dict.fromkeys(named))
    texts = {key: _texts(entries, key) for key in short}

    def parts(place: int, keys: Sequence[str]) -> list[str]:
        return [f"{short[key]}={text}" for key in keys if (text := texts[key][place])]

    found = []
    for place, (entry, kind) in enumerate(zip(entries, kinds, strict=True)):
        name = [kind] if kind else []
        if kind is None or _ALGORITHM in methods[kind]:
            name.append(str(entry.get(_ALGORITHM, "")))
        level = parts(place, tasks)
        rest = parts(place, [key for key in methods[kind] if key != _ALGORITHM])
        text = " ".join([*name, *level, *rest])
        found.append(Label(text, " ".join(level), " ".join([*name, *rest])))
    return found


def _texts(entries: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return the value of a setting in each config as labels have it; a long one has its number."""
    having = [entry for entry in entries if key in entry]
    texts = {_value(entry, key): plain(entry[key]) for entry in reversed(having)}
    if any(len(text) > _LONG for text in texts.values()):
        order = dict.fromkeys(_value(entry, key) for entry in having)
        texts = {value: f"#{number}" for number, value in enumerate(order, 1)}
    # Where another world has the parameter, this one's is not nominal but none.
    worlds = {entry.get(_WORLD) for entry in having} if key.startswith(_OF_CLIENTS) else ()
    silent = [_NOMINAL if entry.get(_WORLD) in worlds else "" for entry in entries]
    return [
        texts[_value(entry, key)] if key in entry else none
        for entry, none in zip(entries, silent, strict=True)
    ]
