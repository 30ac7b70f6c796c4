"""What options of several commands say."""

from __future__ import annotations

import argparse
from typing import Any

from fedkl import config
from fedkl.errors import UserError


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that --set and --rounds give."""
    settings = dict(config.parse_assignment(text) for text in options.set)
    if options.rounds is not None:
        settings["federation.rounds"] = options.rounds
    return settings


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
