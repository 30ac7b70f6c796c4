"""Runs on disk: a federation and its run directory."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.config import Config, from_mapping
from fedkl.errors import StalledError, UserError
from fedkl.runs import RunDirectory
from fedkl.server.loop import Federation
from fedkl.server.records import Record

Warn = Callable[[str], None]
Watch = Callable[[Record], None]

IN_A_LINE = 1000
"""Clients whose returns are logged in a round's line; those of more go to a file beside the log."""
AGAIN_AND_AGAIN = 3
"""Rejections of a client after which the summary names it."""


def create(config: Config, path: Path) -> RunDirectory:
    """A run directory for `config`, at round 0."""
    run = RunDirectory.create(path, config.mapping())
    with run.lock():
        run.write_clients(config.clients())
    return run


def load(run: RunDirectory, warn: Warn, federation: Federation | None = None) -> Federation:
    """The federation of a run, as of its last good checkpoint.

    Args:
        run: the run's directory.
        warn: is told of a damaged checkpoint.
        federation: of the run's config, where there is one already; it is moved on.
    """
    if federation is None:
        federation = Federation(from_mapping(run.config()))
    if (found := run.checkpoints.latest(warn)) is not None:
        try:
            federation.restore(found.arrays, found.rows)
        except ValueError as error:
            raise UserError(
                f"{run.path}: the checkpoint does not fit config.toml: {error}"
            ) from error
    return federation


def go_on(
    run: RunDirectory,
    watch: Watch,
    warn: Warn,
    federation: Federation | None = None,
    until: int | None = None,
) -> Federation:
    """Trains a run from where it stands to its last round, or to an earlier one.

    Whatever moment the process dies at, calling this again gives the same parameters and metrics
    (apart from wall time) as an unbroken run: the state is saved whole, and records of rounds after
    the last good checkpoint are dropped and made again.

    Args:
        run: the run's directory.
        watch: is shown the record of each round.
        warn: is told of a damaged checkpoint.
        federation: of the run's config, where there is one already.
        until: the round after which to stop; calling this again goes on as if nothing had stopped.

    Returns:
        The federation at its end, or after the round where it stops.

    Raises:
        StalledError: too many rounds in a row changed nothing; all of them are logged and saved.
    """
    with run.lock():
        federation = load(run, warn, federation)
        config = federation.config
        run.write_clients(config.clients())  # a comparison makes its runs without
        done, rounds = int(federation.state.round), config.federation.rounds
        stop = rounds if until is None else until
        finished = done == rounds and not federation.stalled
        if finished and run.summary() is not None:
            return federation
        run.metrics.truncate_after(done)
        if len(run.metrics.read()) < done:
            raise UserError(
                f"{run.metrics.path} lacks rounds that the checkpoint of round {done} has"
            )
        if stop <= done < rounds:
            return federation
        if federation.stalled and done < rounds:
            federation.forgive()  # whoever goes on with a run that stalled has mended something
        oldest = done
        try:
            for record in federation:
                _log(run, record)
                done = record["round"]
                last = federation.stalled or done in (stop, rounds)
                if last or done % config.checkpoint.every == 0:
                    run.checkpoints.save(done, *federation.save())
                    # The checkpoint before may be gone back to, should this one be damaged.
                    federation.saved(oldest)
                    oldest = done
                watch(record)
                # A run that stalls ends here as it would if nobody stopped it: with a summary.
                if stop <= done < rounds and not federation.stalled:
                    return federation
        except StalledError:
            run.write_summary(summary(run.metrics.read()) | {"stalled": True})
            raise
        run.write_summary(summary(run.metrics.read()))
        return federation


def _log(run: RunDirectory, record: Record) -> None:
    """Appends a record; the returns of very many clients go to a file that the line names."""
    line: dict[str, Any] = dict(record)
    if (returns := record["return_per_client"]) and len(returns) > IN_A_LINE:
        file = run.write_returns(record["round"], np.asarray(returns))
        line |= {"return_per_client": None, "returns_file": str(file.relative_to(run.path))}
    run.metrics.append(line)


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a finished run came to, and what it was made with."""
    last = records[-1]
    finite = [r for r in records if r["return_mean"] is not None]
    best = max(finite, key=lambda r: r["return_mean"], default=last)
    refused = Counter(entry["client"] for r in records for entry in r["rejected"])
    return {
        "rounds": last["round"],
        "return_mean": last["return_mean"],
        "deterministic_return_mean": last["deterministic_return_mean"],
        "best_return_mean": best["return_mean"],
        "best_round": best["round"],
        "env_steps": last["env_steps"],
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "bytes_down_regions": sum(r["bytes_down_regions"] for r in records),
        "bytes_up_regions": sum(r["bytes_up_regions"] for r in records),
        "guarded": sum(r["guarded"] for r in records),
        "rejected": sum(refused.values()),
        "refused_again_and_again": [
            {"client": client, "times": times}
            for client, times in refused.most_common()
            if times >= AGAIN_AND_AGAIN
        ],
        "empty_rounds": sum(r["note"] is not None for r in records),
        "stalled": False,
        "seconds": sum(r["seconds"] for r in records),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that results depend on."""
    packages = ("fedkl", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in packages}
