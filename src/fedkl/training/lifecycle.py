"""Runs on disk: a federation and its run directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedkl.config.config import Config, from_mapping
from fedkl.core.errors import StalledError, UserError
from fedkl.core.text import utc
from fedkl.server.loop import Federation
from fedkl.server.records import Record
from fedkl.simulators.spaces import Spaces
from fedkl.training import plugin_consent, pretrained, spaces
from fedkl.training.directory import RunDirectory
from fedkl.training.metrics import content_digest
from fedkl.training.missing import require_checkpoints, say_lost_best, say_missing_best
from fedkl.training.origin import Origin, decode, listed, refusal
from fedkl.training.plugin_consent import of_run
from fedkl.training.provenance import origin_of
from fedkl.training.records import require_sensible
from fedkl.training.restore import Trainable, restore
from fedkl.training.summary import summary

Warn = Callable[[str], None]
Watch = Callable[[Record], None]

IN_A_LINE = 1000
"""Clients whose returns are logged in a round's line; those of more go to a file beside the log."""


def create(config: Config, path: Path, serve: Callable[[Path], None] | None = None) -> RunDirectory:
    """A run directory for `config`, at round 0; `serve` as of `RunDirectory.creating`."""
    with creating(config, path, serve) as run:
        return run


@contextlib.contextmanager
def creating(
    config: Config, path: Path, serve: Callable[[Path], None] | None = None
) -> Iterator[RunDirectory]:
    """Make a run directory for `config`, and hold it inside the block (`RunDirectory.creating`)."""
    plugin_consent.remember(config.mapping())

    def write_first(path: Path) -> None:
        if config.pretrained is not None:
            pretrained.write(config.pretrained, path)
        if serve is not None:
            serve(path)

    with RunDirectory.creating(path, config.mapping(), write_first) as run:
        _write_world(run, config)
        yield run


def config_of(run: RunDirectory, rounds: int | None = None) -> Config:
    """The config of a run, or what it would be with another number of rounds; nothing is written.

    A run may be made longer; one that is not finished also shorter, but not below where it stands.

    Args:
        run: the run's directory.
        rounds: so many instead of those that its config asks for; None: those.

    Raises:
        UserError: the config is wrong, there is no consent to its code, or the run has more rounds
            already.
    """
    config = of_run(run)  # also of one that is made longer: what is wrong is not written again
    if rounds is None:
        return config
    _require_length(run, rounds, run.metrics.count())
    return from_mapping(_with_rounds(run.config(), rounds), config.pretrained)


def _require_length(run: RunDirectory, rounds: int, logged: int) -> None:
    if rounds < logged:
        raise UserError(f"rounds must be at least {logged}, which {run.path} has, not {rounds}")


def _with_rounds(config: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    return {**config, "federation": {**config.get("federation", {}), "rounds": rounds}}


def _write_world(run: RunDirectory, config: Config) -> None:
    """Write what is known of clients and of policies without training; what is there stays."""
    run.write_clients(config.clients())
    known = Spaces(config.world.observation_size, config.world.actuators)
    run.require_lock()
    spaces.write(run.path, known)


def load(
    run: RunDirectory,
    warn: Warn,
    federation: Federation | None = None,
    until: int | None = None,
    best: bool = False,
    accept: bool = False,
) -> Federation:
    """The federation of a run, as of its last good checkpoint.

    Args:
        run: the run's directory.
        warn: is notified of a damaged checkpoint, and of one that was made by other versions.
        federation: of the run's config, where there is one already; it is moved on.
        until: as of the last one of this round or an earlier one; None: of any.
        best: as of the best evaluated round instead, to look at and not to resume from.
        accept: go on although config, plugins or clients' worlds are not those of the checkpoint.

    Raises:
        UserError: a checkpoint was made with something else; or the run names a plugin
            without consent to run it.
    """
    if federation is None:
        federation = Federation(of_run(run))
    every, logged, ended = federation.config.checkpoint.every, run.metrics.count(), run.ended(warn)
    if best:
        require_checkpoints(run, run.newest(), logged, ended, every, warn, best)
    _restore(federation, run, warn, until, best, accept)
    done = int(federation.state.round)
    if best:
        say_missing_best(run, done, warn)
    elif until is None:
        require_checkpoints(run, done, logged, ended, every, warn)
    return federation


class _Start(NamedTuple):
    """The point that a run resumes from."""

    origin: Origin
    """Of what it makes from there on."""
    rounds: int
    """As many as it was to have when the checkpoint was made."""
    changes: Sequence[str]
    """Differences from then that were accepted."""


def _restore(
    federation: Trainable,
    run: RunDirectory,
    warn: Warn,
    until: int | None = None,
    best: bool = False,
    accept: bool = False,
) -> _Start:
    now = origin_of(run.config(), federation.config)

    def require_same(before: Origin, round: int) -> None:
        if not accept and (changes := before.differences(now)):
            raise refusal(run.path, round, changes)

    before = restore(run, federation, warn, require_same, until, best)
    done = int(federation.state.round)
    if before is None:
        if done > 0:
            warn(f"{run.path} was made by a fedkl that wrote down no origin: nothing is compared")
        return _Start(now, now.rounds, [])
    if changes := before.differences(now):
        warn(f"accepted from round {done} on: {listed(changes)}")
    if newer := before.newer_versions(now):
        warn(f"{run.path} was made by other versions, results may differ from here on: {newer}")
    longer = []
    if before.rounds != now.rounds:  # making a run longer is allowed, and is written down
        longer = [f"federation.rounds was {before.rounds}, is {now.rounds}"]
    return _Start(before.continued(now, done, [*changes, *longer]), before.rounds, changes)


def run_remaining(
    run: RunDirectory,
    watch: Watch,
    warn: Warn,
    federation: Trainable | None = None,
    until: int | None = None,
    accept: bool = False,
    lengthened: bool = False,
) -> Trainable:
    """Train a run from where it stands to its last round, or to an earlier one.

    Whenever the process dies, calling this again gives the same parameters and metrics
    (apart from wall time) as an unbroken run: the state is saved whole, and records of rounds after
    the last good checkpoint are dropped and made again.

    Args:
        run: the run's directory.
        watch: is shown the record of each round.
        warn: is notified of a damaged or missing checkpoint, and of one made by other versions.
        federation: of the run's config, where there is one already.
        until: the round after which to stop; calling this again resumes as if nothing had stopped.
        accept: resume although config, plugins or clients' worlds are not those of the checkpoint.
        lengthened: its federation has another number of rounds than config.toml, on request: it is
            written there once nothing stands against resuming.

    Returns:
        The federation at its end, or after the round where it stops.

    Raises:
        StalledError: too many rounds in a row changed nothing, or the run is over and no return
            ever was a number; all of it is logged and saved.
    """
    with run.lock() as lock:
        if federation is None:
            federation = Federation(of_run(run))
        origin, planned, changes = _restore(federation, run, warn, accept=accept)
        config = federation.config
        done, rounds = int(federation.state.round), config.federation.rounds
        stop = rounds if until is None else until
        finished = done == rounds and not federation.stalled
        logged = run.metrics.require_rounds(done, origin.log)
        before = run.summary()
        require_checkpoints(run, done, logged, run.ended(warn), config.checkpoint.every, warn)
        # One of fewer rounds is from before the run was made longer, and is written again.
        if not finished or (before is not None and before.get("rounds") != done):
            before = None
        if before is not None and before.get("log", origin.log) != origin.log:
            raise UserError(
                f"{run.path / 'summary.json'} is not of this log: remove it, and resuming "
                "writes it again"
            )
        if lengthened:
            _require_length(run, rounds, logged)
            run.replace_config(_with_rounds(run.config(), rounds))
        elif planned != rounds:
            warn(f"federation.rounds was {planned}, is {rounds}")
        if stop < done:
            warn(f"{run.path} is at round {done} already, which is beyond round {stop}")
        _write_world(run, config)  # a comparison makes its runs without
        run.metrics.truncate_after(done)
        run.best.drop_after(done)
        if config.checkpoint.keep_best:
            say_lost_best(run, warn)
        if finished:
            _mend(run, federation, origin, changes, accept)
        if before is not None and not changes:
            _require_returns(run, before)
            return federation
        if stop <= done < rounds:
            return federation
        if federation.stalled and done < rounds:
            federation.reset_stall_counter()  # what made it stall may have been mended
        oldest, unchanged = done, origin.encode()
        best = _best_return(run) if config.checkpoint.keep_best else math.inf
        try:
            for record in federation:
                origin = replace(origin, log=_log(run, record, origin.log))
                done = record["round"]
                last = federation.stalled or done in (stop, rounds)
                reached = record["return_mean"]
                said = unchanged | {"log": json.dumps(origin.log)}
                if better := reached is not None and reached > best:
                    best = reached
                    # First, so that the run never stands at a round whose best one is not there.
                    run.best.save(done, *federation.save()[:2], origin=said)
                if better or last or done % config.checkpoint.every == 0:
                    run.checkpoints.save(done, *federation.save(), said)
                    lock.note(done)
                    # The checkpoint before may be gone back to, should this one be damaged, and
                    # the best ones may be evaluated.
                    federation.saved(min([oldest, *run.best.rounds()]))
                    oldest = done
                watch(record)
                # A run that stalls ends here as it would if it were not stopped: with a summary.
                if stop <= done < rounds and not federation.stalled:
                    return federation
        except StalledError:
            if run.metrics.read():  # else clients were gone before the first was over
                run.write_summary(summary(run.metrics, origin) | {"stalled": True})
            raise
        ended = summary(run.metrics, origin)
        run.write_summary(ended)
        _require_returns(run, ended)
        return federation


def _mend(
    run: RunDirectory, federation: Trainable, origin: Origin, changes: Sequence[str], accept: bool
) -> None:
    """Mend what `fedkl check` finds in a run that is finished, and saves nothing more by itself.

    Args:
        run: the run's directory.
        federation: at its end.
        origin: of what it makes from here on.
        changes: in which its newest checkpoint differs.
        accept: older checkpoints and the best one are to be of this origin, too.
    """
    done = int(federation.state.round)
    if changes:
        run.checkpoints.save(done, *federation.save(), origin.encode())
        federation.saved(min([done, *run.best.rounds()]))
    if accept and run.best.rounds():
        _accept_best(run, origin, done)

    def fits(said: Mapping[str, str]) -> bool:
        try:
            made_with = decode(said) if accept else None
        except ValueError:
            return False
        return made_with is None or not made_with.differences(origin)

    for kept in (run.checkpoints, run.best):
        kept.drop_useless(fits)


def _accept_best(run: RunDirectory, origin: Origin, done: int) -> None:
    """Write down with the best round that changes were accepted, as with the newest."""
    try:
        kept = run.best.peek(lambda _: None, None, done)
        before = None if kept is None else decode(kept.origin)
    except (UserError, ValueError):
        return  # it cannot be used, which has been said
    if kept and before and (changes := before.differences(origin)):
        accepted = before.continued(origin, done, changes).encode()
        run.best.save(kept.round, kept.arrays, kept.rows, origin=accepted)


def _require_returns(run: RunDirectory, summary: Mapping[str, Any]) -> None:
    if summary.get("best_return_mean", 0.0) is None:
        raise StalledError(
            f"no evaluated round of {run.path} has a finite return: training or the world has "
            "gone wrong"
        )


def _best_return(run: RunDirectory) -> float:
    """The return of the best round that was kept."""
    kept = max(run.best.rounds(), default=0)
    for record in run.metrics.read():
        require_sensible(run.metrics, record, ("round", "return_mean"))
        if record["round"] == kept and record["return_mean"] is not None:
            return float(record["return_mean"])
    return -math.inf


def _log(run: RunDirectory, record: Record, before: str) -> str:
    """Append a record; the returns of very many clients go to a file that the line names.

    Returns:
        The digest of the log with it, given that of before (`metrics.content_digest`).
    """
    line: dict[str, Any] = {**record, "time": utc(time.time())}
    if (returns := record["return_per_client"]) and len(returns) > IN_A_LINE:
        file = run.write_returns(record["round"], np.asarray(returns))
        line |= {
            "return_per_client": None,
            "returns_file": str(file.relative_to(run.path)),
            "returns_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
    run.metrics.append(line)
    return content_digest(before, line)
