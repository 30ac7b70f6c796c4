"""The settings of the runs as the page shows them: what they share, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as one mapping with dotted keys.

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
    """The dotted keys that some config lacks, or that do not have the same value in all."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({shown(config, key) for config in configs}) > 1]


def shown(config: Mapping[str, Any], key: str) -> str:
    """The value of a dotted key as TOML would write it; empty if the config lacks it."""
    return json.dumps(config[key], default=str) if key in config else ""
