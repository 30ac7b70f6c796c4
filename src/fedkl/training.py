"""Runs on disk: a federation and its run directory."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from fedkl.config import Config, from_mapping
from fedkl.errors import UserError
from fedkl.federation.arrays import from_arrays, to_arrays
from fedkl.federation.engines.base import Record
from fedkl.federation.loop import Federation
from fedkl.runs import RunDirectory

Warn = Callable[[str], None]
Watch = Callable[[Record], None]


def create(config: Config, path: Path) -> RunDirectory:
    """A run directory for `config`, at round 0."""
    return RunDirectory.create(path, config.mapping())


def load(run: RunDirectory, warn: Warn) -> Federation:
    """The federation of a run, as of its last good checkpoint.

    Args:
        run: the run's directory.
        warn: is told of a damaged checkpoint.
    """
    federation = Federation(from_mapping(run.config()))
    if (found := run.checkpoints.latest(warn)) is not None:
        try:
            federation.state = from_arrays(federation.state, found[1])
        except ValueError as error:
            raise UserError(
                f"{run.path}: the checkpoint does not fit config.toml: {error}"
            ) from error
    return federation


def go_on(run: RunDirectory, watch: Watch, warn: Warn) -> Federation:
    """Trains a run from where it stands to its last round.

    Whatever moment the process dies at, calling this again gives the same parameters and metrics
    (apart from wall time) as an unbroken run: the state is saved whole, and records of rounds after
    the last good checkpoint are dropped and made again.

    Args:
        run: the run's directory.
        watch: is shown the record of each round.
        warn: is told of a damaged checkpoint.

    Returns:
        The federation at its end.
    """
    with run.lock():
        federation = load(run, warn)
        config = federation.config
        done = int(federation.state.round)
        if done == config.federation.rounds and run.summary() is not None:
            return federation
        run.metrics.truncate_after(done)
        if len(run.metrics.read()) < done:
            raise UserError(
                f"{run.metrics.path} lacks rounds that the checkpoint of round {done} has"
            )
        for record in federation:
            run.metrics.append(record)
            done = int(record["round"])
            if done % config.checkpoint.every == 0 or done == config.federation.rounds:
                run.checkpoints.save(done, to_arrays(federation.state))
            watch(record)
        run.write_summary(summary(run.metrics.read()))
        return federation


def summary(records: list[Record]) -> dict[str, Any]:
    """What a finished run came to, and what it was made with."""
    last = records[-1]
    finite = [r for r in records if r["return_mean"] is not None]
    best = max(finite, key=lambda r: r["return_mean"], default=last)
    return {
        "rounds": last["round"],
        "return_mean": last["return_mean"],
        "deterministic_return_mean": last["deterministic_return_mean"],
        "best_return_mean": best["return_mean"],
        "best_round": best["round"],
        "env_steps": last["env_steps"],
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "guarded": sum(r["guarded"] for r in records),
        "rejected": sum(len(r["rejected"]) for r in records),
        "seconds": sum(r["seconds"] for r in records),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that results depend on."""
    packages = ("fedkl", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in packages}
