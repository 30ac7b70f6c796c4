"""The settings of the runs as the page shows them: what they share, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedkl.core.text import plain, short_keys


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested config into one mapping with dotted keys.

    Example:
        >>> flat({"seed": 1, "learner": {"d_local": 0.01}})
        {'seed': 1, 'learner.d_local': 0.01}
    """
    entries: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            entries |= flat(value, f"{prefix}{key}.")
        else:
            entries[prefix + key] = value
    return entries


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the dotted keys that some config lacks, or that do not have the same value in all."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({shown(config, key) for config in configs}) > 1]


def shown(config: Mapping[str, Any], key: str) -> str:
    """Return the value of a dotted key as TOML would write it; empty if the config lacks it."""
    return json.dumps(config[key], default=str) if key in config else ""


_ALGORITHM, _WORLD, _OF_WORLD = "algorithm.name", "world.name", "world."
_NO_DIFFERENCE = ("seed", "preset", "plugins", "tuned_on", "checkpoint.")
"""Settings without influence on results, or that differ within a group; groups end in a dot."""
ALONE, CENTRALISED = REFERENCES = ("each alone", "centralised")
_LONG = 40
"""Characters of a value beyond which a label has its number instead."""


def telling(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that tell runs apart, beside the seed; as few as do.

    A setting that follows from those named before it is not named: a penalty that only one
    algorithm has follows from the algorithm. The world is named whenever it differs. A setting
    that some configs lack, because an older version made them, tells nothing by that.

    Args:
        configs: as `flat` gives them.
    """
    keys = dict.fromkeys([_ALGORITHM, _WORLD, *(key for config in configs for key in config)])
    groups = [""] * len(configs)
    chosen = []
    for key in keys:
        texts = [shown(config, key) for config in configs]
        if key.startswith(_NO_DIFFERENCE) or len({*texts} - {""}) < 2:
            continue
        finer = [f"{group}\n{text}" for group, text in zip(groups, texts, strict=True)]
        if key == _WORLD or _splits(groups, texts):
            chosen.append(key)
            groups = finer
    return chosen


def _splits(groups: Sequence[str], texts: Sequence[str]) -> bool:
    """Return True if some runs of a group have one text and some another."""
    seen: dict[str, set[str]] = {}
    for group, text in zip(groups, texts, strict=True):
        seen.setdefault(group, set()).add(text)
    return any(len(found - {""}) > 1 for found in seen.values())


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
    """The part of it that says which task is learnt: settings of the world in which runs differ."""
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
    kinds = [reference(config) for config in configs]
    found = [Label("", "", "")] * len(configs)
    for kind in dict.fromkeys(kinds):
        places = [place for place, other in enumerate(kinds) if other == kind]
        same = _labels([flat(configs[place]) for place in places], kind)
        for place, label in zip(places, same, strict=True):
            found[place] = label
    return found


def _labels(entries: Sequence[Mapping[str, Any]], kind: str | None) -> list[Label]:
    """Label runs of one kind: references of the same name, or runs that are none."""
    differs = telling(entries)
    keys = [key for key in differs if key != _ALGORITHM]
    short = short_keys(keys)
    names = [{"kind": kind} if kind else {} for _ in entries]
    if kind is None or _ALGORITHM in differs:
        for name, entry in zip(names, entries, strict=True):
            name[_ALGORITHM] = str(entry.get(_ALGORITHM, ""))
    for key in keys:
        texts = [plain(entry[key]) if key in entry else "" for entry in entries]
        if any(len(text) > _LONG for text in texts):
            number = {text: f"#{n}" for n, text in enumerate(dict.fromkeys(texts), 1)}
            texts = [number[text] if text else "" for text in texts]
        for name, text in zip(names, texts, strict=True):
            name |= {key: f"{short[key]}={text}"} if text else {}
    return [_label(name) for name in names]


def _label(parts: Mapping[str, str]) -> Label:
    level = [text for key, text in parts.items() if key.startswith(_OF_WORLD)]
    method = [text for key, text in parts.items() if not key.startswith(_OF_WORLD)]
    return Label(" ".join(parts.values()), " ".join(level), " ".join(method))
