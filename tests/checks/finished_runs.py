"""Runs that are over in a moment, to be copied and spoilt."""

from pathlib import Path
from typing import Any

import pytest

import fedkl
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory

SMALLEST = {
    "federation.rounds": 2,
    "federation.clients": 3,
    "learner.iterations": 1,
    "learner.steps": 16,
    "learner.minibatch": 16,
    "learner.epochs": 1,
    "critic.epochs": 1,
    "critic.minibatch": 16,
    "evaluation.episodes": 1,
    "world.spread": 0.1,
}


def smallest(seed: int = 0, settings: dict[str, Any] | None = None) -> fedkl.Config:
    """The config of such a run."""
    return fedkl.preset("probe-point", seed=seed, set=SMALLEST | (settings or {}))


def finish(path: Path, seed: int = 0, settings: dict[str, Any] | None = None) -> RunDirectory:
    """Trains such a run to its end."""
    run = lifecycle.create(smallest(seed, settings), path)
    lifecycle.run_remaining(run, lambda record: None, pytest.fail)
    return run
