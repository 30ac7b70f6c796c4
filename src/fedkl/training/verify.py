"""Checks everything in a run directory: what is wrong, and what can be done about it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedkl.config.config import Config, from_mapping
from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.io.locks import holder
from fedkl.simulators.spaces import Spaces
from fedkl.training import checkpoint_files, plugin_consent, pretrained, spaces
from fedkl.training.checkpoint_files import DamagedError, File, FileGoneError
from fedkl.training.checkpoints import require_finite
from fedkl.training.directory import START, RunDirectory, as_csv
from fedkl.training.missing import require_checkpoints, say_missing_best
from fedkl.training.origin import Origin, decode, listed
from fedkl.training.plugin_consent import UnknownCodeError
from fedkl.training.provenance import origin_of

_OURS = {
    ".lock",
    "best",
    "checkpoints",
    "clients.csv",
    "config.toml",
    "curves.csv",
    "figures",
    "flower",
    "initial.json",
    "metrics.jsonl",
    "plan.toml",
    "report.html",
    "returns",
    "serving.toml",
    "spaces.json",
    "start",
    "summary.json",
    "table.csv",
    "table.tex",
    "tensorboard",
    "worker.log",
}
_FOLDERS = ("best", "checkpoints", "returns", "start")
_SERVED = "flower"
_OF_SERVED = re.compile(
    r"(superlink|superexec)\.log|status\.json"
    r"|node-\d+(/(supernode|apps)\.log)?"
    r"|clients(/\d+(/(worker\.(log|sock|lock)|(starting|compiling)\.lock|refused|over"
    r"|[0-9a-f]{32}(/\d{6,}\.safetensors)?))?)?"
)
"""The contents of that folder: logs, and the state of clients on this machine."""
_LOOKS = 3
"""At a run that changes while it is looked at."""


class Fault(NamedTuple):
    """Something that is wrong with a run, or with several and their plan."""

    what: str
    remedy: str
    """The thing to do; empty if nothing is wrong, and it is only said."""
    passing: bool = False
    """True if a process that writes leaves it so for a moment."""


def check(run: RunDirectory) -> list[Fault]:
    """All that is wrong with a run; nothing is changed, and code is run only if it is trusted.

    Beside a process that trains the run, only what is wrong at every look counts, and what belongs
    to writing does not.
    """
    lasting: list[Fault] | None = None
    for _ in range(_LOOKS):
        before, findings = _signature(run), _check(run)
        writer = holder(run.path)
        still = before == _signature(run)
        if writer is None and (still or not findings):
            return findings
        found = [finding for finding in findings if not finding.passing]
        before_it = found if still or lasting is None else lasting
        lasting = [finding for finding in found if finding in before_it]
        if still or not lasting:
            break
    who = "another process" if writer is None else f"process {writer}"
    said = f"{run.path} is being written by {who}, and was looked at as far as that allows"
    return [Fault(said, ""), *(lasting or ())]


def _signature(run: RunDirectory) -> dict[str, tuple[int, ...]]:
    """Everything that a writer of a run changes when it writes."""
    found: dict[str, tuple[int, ...]] = {}
    for folder in (run.path, *(run.path / name for name in _FOLDERS)):
        # One that is not there, or may not be looked at, does not change.
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in _OURS - {"worker.log"} or folder != run.path:
                    with contextlib.suppress(FileNotFoundError):
                        now = entry.stat(follow_symlinks=False)
                        found[entry.path] = (now.st_ino, now.st_size, now.st_mtime_ns)
    return found


def _check(run: RunDirectory) -> list[Fault]:
    findings = list(_names(run))
    mapping, config = None, None
    try:
        mapping = run.config()
        plugin_consent.require(mapping, run.path)
        config = from_mapping(mapping)
    except UnknownCodeError as error:
        findings.append(
            Fault(str(error), "without it neither settings nor clients can be looked at")
        )
    except UserError as error:
        findings.append(
            Fault(str(error), "the checkpoints say what the settings were: put them back")
        )
    try:
        plugin_consent.require_served(run.path)
    except UserError as error:
        findings.append(Fault(str(error), "until then it is neither resumed nor evaluated"))
    now = origin_of(mapping, config) if mapping is not None and config is not None else None
    findings += _log(run)
    findings += _checkpoints(run, now, config)
    findings += _summary(run, now)
    findings += _returns(run)
    findings += _clients(run, config)
    findings += _start(run, mapping)
    findings += _spaces(run, config)
    return findings


def _names(run: RunDirectory) -> Iterator[Fault]:
    """Find what should not be there: links, leftovers, other people's files."""
    for path in sorted(run.path.iterdir()):
        inside = path.is_dir() and not path.is_symlink() and path.name in _FOLDERS
        for entry in (path, *(sorted(path.iterdir()) if inside else ())):
            yield from _unwanted(entry, "the next process that goes on with the run removes it")
        if path.name not in _OURS and not files.is_temporary(path.name):
            yield Fault(f"{path} is not of a run", "move it elsewhere")
    yield from _served(run.path / _SERVED)


def _unwanted(path: Path, remover: str) -> Iterator[Fault]:
    """Find a link, or what an interrupted write has left, and say who removes it."""
    if path.is_symlink():
        yield Fault(f"{path} is a symbolic link", "put what it leads to in its place")
    elif files.is_temporary(path.name):
        what = f"{path} was left by a write that was interrupted"
        yield Fault(what, f"nothing: {remover}", passing=True)


def _served(folder: Path) -> Iterator[Fault]:
    """Name files that a served run should not have, above all code that Flower would run."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for within, folders, names in os.walk(folder):
        for name in sorted((*folders, *names)):
            path = Path(within) / name
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # a client that is at work has removed it
            ordinary = (stat.S_ISLNK, stat.S_ISREG, stat.S_ISDIR, stat.S_ISSOCK)
            if not any(kind(mode) for kind in ordinary):
                yield Fault(f"{path} is not an ordinary file", "remove it")
            elif unwanted := [*_unwanted(path, "the client removes it when it writes again")]:
                yield from unwanted
            elif not _OF_SERVED.fullmatch(path.relative_to(folder).as_posix()):
                yield Fault(
                    f"{path} is not of a run",
                    "move it elsewhere: an older fedkl may have left it, or somebody may have "
                    "planted it; nothing runs it",
                )
                if name in folders:  # what is in it is said with it
                    folders.remove(name)


def _log(run: RunDirectory) -> Iterator[Fault]:
    path = run.metrics.path
    try:
        run.metrics.require_rounds()
        lines = [line.sealed for line in run.metrics.lines()]
    except UserError as error:
        yield Fault(
            str(error),
            "put back a copy of the log; without one, delete it from that line on and the "
            "checkpoints of later rounds: what is missing is trained again",
        )
        return
    if bare := lines.count(False):
        yield Fault(
            f"{bare} of {len(lines)} lines of {path} carry no checksum, as an older fedkl wrote "
            "them",
            "nothing: lines that are added carry one, and cover those before them",
        )
    if path.exists():
        with files.explain_os_errors("read", path):
            torn = files.read_end(path, 1) != b"\n" or run.metrics.count() > len(lines)
        if torn and path.stat().st_size:
            yield Fault(
                f"the last line of {path} is torn",
                "go on with the run: it is made again",
                passing=True,
            )


def _checkpoints(run: RunDirectory, now: Origin | None, config: Config | None) -> Iterator[Fault]:
    go_on = "put back a copy, or go on with the run: the one before is used"
    best = "put back a copy; until a round is better, `--best` uses the one before"
    newest = run.newest()
    for folder, remedy in ((run.best.directory, best), (run.checkpoints.directory, go_on)):
        try:
            found = checkpoint_files.find(folder)
        except UserError as error:
            yield Fault(str(error), "see to it that it can be read")
            return
        # A best round after the newest checkpoint is of a process that died between the two, and
        # is made again.
        yield from _files(run, [file for file in found if file.round <= newest], now, remedy)
    for what in _missing(run, config):
        yield Fault(what, "put back a copy, if there is one")


def _missing(run: RunDirectory, config: Config | None) -> list[str]:
    """Find checkpoints that are gone, as resuming would."""
    said: list[str] = []
    logged = sum(1 for _ in _whole_lines(run))
    # Without a config it is not known when one was due, but by the lock and the summary.
    every = config.checkpoint.every if config else max(logged, 1)
    ended = run.ended(lambda _: None)  # a summary that cannot be used is another finding
    done = max(run.checkpoints.rounds(), default=0)
    try:
        require_checkpoints(run, done, logged, ended, every, said.append)
        if config and config.checkpoint.keep_best:
            newest = run.newest()
            kept = max((r for r in run.best.rounds() if r <= newest), default=0)
            say_missing_best(run, kept, said.append)
    except UserError as error:
        said.append(str(error))
    return said


def _files(
    run: RunDirectory, found: list[File], now: Origin | None, remedy: str
) -> Iterator[Fault]:
    """Find faults in the checkpoints of one folder; `remedy` is for one that is damaged."""
    bases: set[str] = set()
    for file in found:
        try:
            contents = checkpoint_files.read(file)
            origin = decode(contents.origin)
            require_finite(contents.arrays, "model.")
        except FileGoneError:
            yield Fault(f"checkpoint {file.path} was removed just now", remedy, passing=True)
            continue
        except (DamagedError, ValueError, UserError) as error:
            yield Fault(f"checkpoint {file.path} cannot be used: {error}", remedy)
            continue
        if contents.builds_on is not None:
            bases.add(contents.builds_on)
        inside = contents.arrays.get("round")
        if inside is not None and (inside.ndim or inside != file.round):
            yield Fault(f"checkpoint {file.path} is of another round", "put back a copy")
        yield from _origin(run, file, origin, now)
    for name in sorted(bases - {file.path.name for file in found}):
        yield Fault(f"{name}, on which a checkpoint builds, is missing", "put back a copy")


def _origin(
    run: RunDirectory, file: File, origin: Origin | None, now: Origin | None
) -> Iterator[Fault]:
    """Find a checkpoint that does not belong to its config or its log."""
    if origin is None:
        yield Fault(
            f"checkpoint {file.path} does not say what it was made with: an older fedkl wrote it",
            "nothing: those that come after it will",
        )
        return
    if now is not None and (changes := origin.differences(now)):
        yield Fault(
            f"checkpoint {file.path} was made with something else: {listed(changes)}",
            "put it back, or go on with `fedkl resume --accept-changes`",
        )
    heads = _heads(run)
    if origin.log and heads.get(file.round) != origin.log:
        yield Fault(
            f"{run.metrics.path} is not the log that {file.path.name} belongs to, or ends before "
            f"round {file.round}",
            "put back a copy of the log",
        )


def _whole_lines(run: RunDirectory) -> Iterator[Any]:
    """The lines of the log up to the first that is damaged, which has been said already."""
    try:
        yield from run.metrics.lines()
    except UserError:
        return


def _heads(run: RunDirectory) -> dict[Any, str]:
    """The digest of the log as of each round."""
    return {line.record.get("round"): line.content_digest for line in _whole_lines(run)}


def _summary(run: RunDirectory, now: Origin | None) -> Iterator[Fault]:
    command = f"`fedkl resume {shlex.quote(str(run.path))}`"
    try:
        summary = run.summary()
    except UserError as error:
        yield Fault(str(error), f"remove it; {command} writes it again")
        return
    heads = _heads(run)
    last = len(heads)
    if summary is None:
        if now is not None and last >= now.rounds:
            yield Fault(
                f"{run.path} has all its rounds and no summary",
                f"{command} writes it",
                passing=True,
            )
    elif summary.get("log", heads.get(last)) not in heads.values():
        yield Fault(
            f"the summary in {run.path} is not of its log", f"remove it; {command} writes it again"
        )
    elif summary.get("rounds") != last and not _is_lengthened(summary, last, now):
        yield Fault(
            f"the summary is of round {summary.get('rounds')}, and the log ends with round {last}",
            f"go on with the run by {command}",
            passing=True,
        )


def _is_lengthened(summary: Mapping[str, Any], last: int, now: Origin | None) -> bool:
    """True if a run that was finished has been made longer, and is not finished yet."""
    rounds = summary.get("rounds")
    return type(rounds) is int and now is not None and rounds < last < now.rounds


def _returns(run: RunDirectory) -> Iterator[Fault]:
    for line in _whole_lines(run):
        if line.record.get("returns_file") is None:
            continue
        try:
            run.read_returns(line.record["round"], line.record.get("returns_sha256"))
        except UserError as error:
            yield Fault(str(error), "put back a copy; only reports read it")


def _clients(run: RunDirectory, config: Config | None) -> Iterator[Fault]:
    path = run.path / "clients.csv"
    if config is None or not run.metrics.path.exists():
        return
    rows = config.clients()
    said = as_csv(rows).encode() if rows else b""
    try:
        with files.explain_os_errors("read", path):
            # One more than there should be: more says nothing more.
            found = files.read_start(path, len(said) + 1) if path.exists() else b""
    except UserError as error:
        yield Fault(str(error), "see to it that it can be read")
        return
    if found != said:
        yield Fault(
            f"{path} is not what the config says of the clients",
            "remove it: it is written again when the run goes on",
        )


def _start(run: RunDirectory, mapping: Mapping[str, Any] | None) -> Iterator[Fault]:
    try:
        found = pretrained.of_run(run, mapping or {})
    except UserError as error:
        yield Fault(str(error), "put back a copy: the run is not resumed without it")
        return
    if mapping is not None and found is None and (run.path / START).exists():
        what = f"{run.path / START} is of no use: config.toml names no policy to start from"
        yield Fault(what, "move it elsewhere, or put `start_from` back")


def _spaces(run: RunDirectory, config: Config | None) -> Iterator[Fault]:
    remedy = "remove it, if it is there: it is written again when the run goes on"
    if config is None or not run.metrics.path.exists():
        return
    try:
        found = spaces.read(run.path)
    except UserError as error:
        yield Fault(str(error), remedy)
        return
    if found != Spaces(config.world.observation_size, config.world.actuators):
        yield Fault(f"{run.path / spaces.FILE} is not what the world says", remedy)
