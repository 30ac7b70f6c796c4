"""What options of several commands say."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedkl.config import config
from fedkl.core.errors import UserError
from fedkl.core.text import described, folder_name

_ELSEWHERE = ("algorithm.name", "seed", "federation.rounds", "world.name")
"""Settings that a run's name has in another place, or that say only how long it is."""


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that --set and --rounds give.

    Raises:
        UserError: a setting is given twice.
    """
    settings: dict[str, Any] = {}
    rounds = [] if options.rounds is None else [("federation.rounds", options.rounds)]
    for key, value in [*map(config.parse_assignment, options.set), *rounds]:
        if key in settings:
            raise UserError(f"{key} is given twice: as {settings[key]!r} and as {value!r}")
        settings[key] = value
    return settings


def run_named(options: argparse.Namespace, chosen: config.Config) -> Path:
    """Where a run is kept, if nobody says so: the name says what is trained.

    Args:
        options: of the command.
        chosen: the config that they give.
    """
    base = Path(options.preset).name.removesuffix(".toml")
    settings = settings_of(options)
    if "world.name" in settings:
        base = f"{chosen.world.name}-from-{base}"
    own = {key: value for key, value in settings.items() if key not in _ELSEWHERE}
    name = folder_name(base, chosen.algorithm.name, *described(own))
    return Path("runs") / f"{name}-seed{chosen.seed}"


def seeds_of(options: argparse.Namespace) -> tuple[int, ...]:
    """The seeds that --seeds and --first-seed give.

    Raises:
        UserError: there is none, one is negative, or --jobs is below 1.
    """
    for name, value, low in (
        ("--seeds", options.seeds, 1),
        ("--first-seed", options.first_seed, 0),
        ("--jobs", options.jobs, 1),
    ):
        if value < low:
            raise UserError(f"{name} must be at least {low}, not {value}")
    return tuple(range(options.first_seed, options.first_seed + options.seeds))
