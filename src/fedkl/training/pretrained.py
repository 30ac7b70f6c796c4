"""Start a run from the policy of another one, and keep a copy of it in the run's directory.

start/   the parts that were taken, as a checkpoint of round 0, whose metadata say of which run and
         round they are and what that was made with

The config has a checksum of them (`start_from`), which every checkpoint of the run carries with the
other settings. So the run needs the other one no more, and cannot be resumed from another policy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedkl.config.config import Config, from_mapping
from fedkl.config.pretrained import TAKEN, Pretrained
from fedkl.core.arguments import run_path, whole
from fedkl.core.errors import UserError
from fedkl.training.checkpoints import Checkpoints, Saved, require_finite
from fedkl.training.directory import START, RunDirectory

BEST = "best"
_PREFIX = "model."
_SOURCE = "source"
Warn = Callable[[str], None]


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)


def start_from(
    config: Config, run: str | Path, round: int | str | None = None, *, warn: Warn = _warn
) -> Config:
    """Make the config of a run that starts from what another run has learnt.

    Args:
        config: what to train, of the same sizes: another algorithm, other clients, another world.
        run: the other run's directory.
        round: which of its rounds, of those that it keeps: a number, "best"
            (`checkpoint.keep_best`), or None for the newest.
        warn: is notified of what begins anew although it need not, and of damaged checkpoints.

    Returns:
        The config, for `fedkl.train` and `fedkl.Federation`.

    Raises:
        UserError: the other run has no such round, its clients keep a part of the policy to
            themselves, or it does not fit; the sentence names both and what differs.
    """
    if not isinstance(config, Config):
        raise UserError(f"config must be what fedkl.preset(...) gives, not {config!r}")
    pretrained = read(RunDirectory.open(run_path(run)), round, warn)
    started = from_mapping(config.mapping() | {"start_from": pretrained.sha256}, pretrained)
    model, client = started.first_states  # refuses what does not fit
    if client.critic is None and model.critic is None:
        return started
    if not any(name.startswith("critic.") for name in pretrained.arrays):
        warn(f"{pretrained.source} has no critic at its server: the critic begins anew")
    return started


def read(run: RunDirectory, round: int | str | None, warn: Warn) -> Pretrained:
    """Read what a new run may take from a run.

    Args:
        run: its directory.
        round: which, as `start_from` takes it.
        warn: is notified of damaged checkpoints.

    Raises:
        UserError: there is no such round, or its policy is not whole.
    """
    saved = _saved(run, round, warn)
    source = f"round {saved.round} of {run.path}"
    federation = run.config().get("federation")
    kept = federation if isinstance(federation, dict) else {}
    for name, what in (
        ("personal", "a part of the policy"),
        ("observation_statistics", "statistics of its observations"),
    ):
        if kept.get(name, "none") not in ("none", "federated"):
            raise UserError(
                f"no run can start from {run.path}: each of its clients keeps {what} to itself "
                f"(federation.{name} = {kept[name]}), so there is no policy of all"
            )
    arrays = {
        name.removeprefix(_PREFIX): array
        for name, array in saved.arrays.items()
        if name.removeprefix(_PREFIX).split(".")[0] in TAKEN and name.startswith(_PREFIX)
    }
    try:
        require_finite(arrays, "")
    except ValueError as error:
        raise UserError(f"no run can start from {source}: {error}") from error
    return Pretrained(arrays, source, saved.origin)


def _saved(run: RunDirectory, round: int | str | None, warn: Warn) -> Saved:
    """Read a round of a run, without the rows of its clients."""
    if round == BEST:
        found = run.checkpoint(warn, best=True, rows=())
    elif round is None:
        found = run.checkpoint(warn, best=False, rows=())
    else:
        if isinstance(round, str):
            raise UserError(f"the round to start from must be a number or {BEST}, not {round!r}")
        number = whole("the round to start from", round, 1)
        for kept in (run.checkpoints, run.best):
            if number in kept.rounds():
                found = kept.peek(warn, (), number)
                if found is not None and found.round == number:
                    return found
        there = sorted({*run.checkpoints.rounds(), *run.best.rounds()})
        raise UserError(
            f"{run.path} does not keep round {number}; available: "
            f"{', '.join(map(str, there)) or 'none yet'}"
        )
    if found is None or found.round == 0:
        raise UserError(f"{run.path} has no finished round to start from yet")
    return found


def write(pretrained: Pretrained, run: Path) -> None:
    """Write what a run starts from into its directory."""
    arrays = {f"{_PREFIX}{name}": array for name, array in pretrained.arrays.items()}
    said = {**pretrained.origin, _SOURCE: pretrained.source}
    Checkpoints(run / START, keep=1).save(0, arrays, origin=said)


def of_run(run: RunDirectory, config: Mapping[str, Any]) -> Pretrained | None:
    """Return what a run started from; None if it started from a new policy.

    Args:
        run: its directory.
        config: as it has it.

    Raises:
        UserError: it is missing, damaged, or not what the config says.
    """
    if not (sha256 := config.get("start_from")):
        return None
    saved = Checkpoints(run.path / START).peek(lambda _: None, ())
    if saved is None:
        raise UserError(f"{run.path / START} does not have the policy that the run started from")
    arrays = {name.removeprefix(_PREFIX): array for name, array in saved.arrays.items()}
    found = Pretrained(arrays, saved.origin.get(_SOURCE, "another run"), saved.origin)
    if found.sha256 != sha256:
        raise UserError(
            f"{run.path / START} has another policy than the run started from, or `start_from` in "
            "config.toml was changed"
        )
    return found
