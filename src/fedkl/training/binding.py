"""The bond between the plan of several runs and the runs: neither is believed without the other.

RUN/plan.toml   the plan that a run was made by, and the run's name in it

A run is judged by its own config, and a plan that says something else is refused. What configs do
not tell, such as the rounds at which candidates are judged, every run's copy of the plan does. Of
the plan `jobs` alone may be edited: no result depends on it. Runs that an older fedkl made have no
copy; they are compared by their configs, and get one when they are resumed.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from fedkl.config.config import from_mapping, put
from fedkl.config.pretrained import Pretrained
from fedkl.core.errors import UserError
from fedkl.io import files, strict_json, strict_toml
from fedkl.io.locks import holder, lock_directory
from fedkl.training import plugin_consent, pretrained
from fedkl.training.comparison import runs_in
from fedkl.training.directory import RunDirectory
from fedkl.training.origin import differences, listed
from fedkl.training.plans import ADDING, RunsPlan
from fedkl.training.verify import Fault

COPY = "plan.toml"
_FREE = "jobs"


class PlanCopy(NamedTuple):
    """A run's copy of its plan."""

    file: str
    """The plan's, in the directory around the run."""
    run: str
    """The run's name there."""
    plan: dict[str, Any]


def bind(plan: RunsPlan, run: Path) -> None:
    """Write into a run which plan it was made by."""
    said = {"file": plan.FILE, "run": run.name, "plan": plan.values()}
    files.write_atomically(run / COPY, tomli_w.dumps(said).encode())


def make_runs(
    plan: RunsPlan,
    folder: Path,
    configs: Mapping[str, Mapping[str, Any]],
    starts: Mapping[str, Pretrained | None],
) -> None:
    """Make runs of a plan at round 0 in a folder, each bound to the plan.

    Args:
        plan: says which runs.
        folder: where.
        configs: the name of each run, and its config as TOML can hold it.
        starts: what runs start from, if not from a new policy.

    Raises:
        UserError: a config starts from a policy that is not here.
    """
    for name, config in configs.items():
        plugin_consent.remember(config)
        start = starts.get(name)
        if config.get("start_from") and start is None:
            raise UserError(
                f"the config of {name} starts from a policy of another run (start_from), which "
                "is not here: leave start_from out of it"
            )
        write = None if start is None else partial(pretrained.write, start)
        RunDirectory.create(folder / name, config, write)
        bind(plan, folder / name)


def read_copy(run: Path) -> PlanCopy | None:
    """Read a run's copy of its plan; None if it has none.

    Raises:
        UserError: it cannot be read, or is damaged.
    """
    if not (run / COPY).is_file():
        return None
    values = strict_toml.read(run / COPY)
    kinds = {"file": str, "run": str, "plan": dict}
    if {key: type(value) for key, value in values.items()} != kinds:
        raise UserError(f"{run / COPY} is damaged: it must have a file, a run and a plan")
    return PlanCopy(**values)


def recall(kinds: Sequence[type[RunsPlan]], path: Path) -> RunsPlan | None:
    """The plan that the runs of a directory were made by, as most of their copies have it; None if
    they have none, or some of its runs are not there."""
    there = runs_in(path) if path.is_dir() else []
    found: list[RunsPlan] = []
    for run in there:
        try:
            own = read_copy(run)
            kind = next((kind for kind in kinds if own and own.file == kind.FILE), None)
            if own is not None and kind is not None and own.run == run.name:
                found.append(kind.parse(copy.deepcopy(own.plan), str(run / COPY)))
        except UserError:
            continue  # another run may have a whole one
    for text, _ in Counter(str(plan) for plan in found).most_common():
        plan = next(plan for plan in found if str(plan) == text)
        if plan.OF_TABLE or {*plan.run_paths(path)} <= {*there}:
            return plan
    return None


def require(plan: RunsPlan, path: Path, warn: Callable[[str], None]) -> None:
    """Require that a plan and its runs agree.

    Args:
        plan: of the directory.
        path: the directory.
        warn: is notified of what need not stop it.

    Raises:
        UserError: they do not; the sentence names the run and what differs.
    """
    for finding in check_plan(plan, path):
        if finding.remedy and not finding.passing:
            raise UserError(f"{finding.what}; {finding.remedy}")
        warn(finding.what)


def bind_all(plan: RunsPlan, path: Path) -> None:
    """Bind the runs of a plan that are not yet, once they are known to agree with it.

    Raises:
        UserError: another process trains them, or one cannot be written to.
    """
    runs = [run for run in plan.run_paths(path) if (run / "config.toml").is_file()]
    if unbound := [run for run in runs if not (run / COPY).is_file()]:
        with lock_directory(path):
            for run in unbound:
                bind(plan, run)


def check_plan(plan: RunsPlan, path: Path) -> Iterator[Fault]:
    """All in which a plan and the runs beside it do not agree."""
    file, command = path / plan.FILE, f"`fedkl resume {shlex.quote(str(path))}`"
    if (path / ADDING).exists():
        going_on = holder(path) is not None
        remedy = "" if going_on else f"{command} completes it"
        yield Fault(
            f"{path} is being added to"
            if going_on
            else f"{path} was being added to when that was interrupted",
            remedy,
        )
        return
    there = {run.name: run for run in runs_in(path)}
    copies: dict[str, PlanCopy] = {}
    for name, run in there.items():
        try:
            if (own := read_copy(run)) is not None:
                copies[name] = own
        except UserError as error:
            yield Fault(str(error), f"remove it: {command} writes it again")
    changed = {name: _changes(plan, own) for name, own in copies.items()}
    if changed and all(changed.values()):
        name = next(iter(changed))
        yield Fault(
            f"{file} is not the plan that {there[name]} was made by: {listed(changed[name])}",
            f"put it back, or remove it: {command} writes it again from the copy in its runs",
        )
        return
    for name, changes in changed.items():
        if changes:
            yield Fault(
                f"{there[name]} was made by another plan than {file}: {listed(changes)}",
                f"move it elsewhere; if it belongs here, remove {there[name] / COPY}",
            )
        elif copies[name].run != name:
            yield Fault(
                f"{there[name]} was made as {copies[name].run}",
                "give it its name back, or move it elsewhere",
            )
    try:
        said = plan.settings_by_run()
    except UserError as error:
        yield Fault(f"{file} is not a plan: {error}", "put back a copy")
        return
    yield from _check_runs(plan, said, there, file)
    damaged = {name for name in there if (there[name] / COPY).is_file()} - copies.keys()
    yield from _check_copies(plan, said.keys(), there, copies.keys() | damaged, file)


def _check_runs(
    plan: RunsPlan, said: Mapping[str, Mapping[str, Any]], there: Mapping[str, Path], file: Path
) -> Iterator[Fault]:
    """Compare what a plan says of its runs with their configs."""
    for name, settings in said.items():
        run = file.parent / name
        if run.is_symlink():
            yield Fault(f"{run} is a symbolic link", "put what it leads to in its place")
        elif name not in there and plan.OF_TABLE:
            yield Fault(f"{run} is not there yet: it is made when {file.parent} is resumed", "")
        elif name not in there:
            yield Fault(f"{run} is missing, which {file} names", "put back a copy")
        elif difference := _difference(there[name], settings, plan.OF_TABLE):
            yield Fault(
                f"{run} is not the run that {file} says: its {difference}",
                "put back what was there, or move the run elsewhere",
            )


def _check_copies(
    plan: RunsPlan,
    planned: Collection[str],
    there: Mapping[str, Path],
    bound: Collection[str],
    file: Path,
) -> Iterator[Fault]:
    """Find runs that have no copy of the plan, and those that no plan names."""
    unbound = [name for name in planned if name in there and name not in bound]
    others = [name for name in there if name not in planned and name not in bound]
    if unbound and not bound:
        yield Fault(
            f"the runs of {file} do not say which plan they are of, because an older fedkl made "
            "them: only their settings are compared",
            "",
        )
    elif unbound:
        for name in unbound:
            what = f"{there[name]} has no {COPY}, and other runs of {file} have"
            yield Fault(what, "go on with it: it is written again", passing=True)
    for name in others:
        if bound or (plan.OF_TABLE and unbound):
            yield Fault(f"{there[name]} is not of {file}, and is left alone", "")
        else:
            yield Fault(
                f"{file} does not name {there[name]}",
                "put back what it lacks, or move the run elsewhere",
            )


def check_results(plan: RunsPlan, path: Path) -> Iterator[Fault]:
    """All in which the files that a plan's runs come to are not what the runs say."""
    remedy = f"`fedkl resume {shlex.quote(str(path))}` writes it"
    try:
        results = plan.results(path) or {}
    except UserError as error:
        yield Fault(str(error), "")
        return
    for name, expected in results.items():
        try:
            with files.explain_os_errors("read", path / name):
                found = _canonical(name, files.read_bytes(path / name, strict_toml.LARGEST))
        except (UserError, ValueError) as error:
            # A process that trains the runs is about to write it.
            if (path / name).exists() or holder(path) is None:
                yield Fault(f"{path / name} cannot be used: {error}", remedy)
            continue
        if found != _canonical(name, expected):
            yield Fault(f"{path / name} is not what the runs of {path} say", f"{remedy} again")


def _canonical(name: str, data: bytes) -> Any:
    """The meaning of a file: what it says, if it is of a kind that says the same in many ways."""
    if name.endswith(".json"):
        said = strict_json.decode(data)
    elif name.endswith(".toml"):
        said = strict_toml.parse(data.decode("utf-8"))
    else:
        return data
    said.pop(_FREE, None)
    return json.dumps(said, sort_keys=True, default=str)


def _changes(plan: RunsPlan, own: PlanCopy) -> list[str]:
    """Return what a plan says otherwise than a run's copy, in a few words each."""
    if own.file != plan.FILE:
        return [f"it is of a {own.file}"]
    try:
        before = type(plan).parse(copy.deepcopy(own.plan), COPY)
    except UserError as error:
        return [str(error)]
    return differences(_flat(before.values()), _flat(plan.values()))


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Write a plan as texts by dotted name, without what may be edited."""
    if isinstance(value, Mapping):
        inner = [(key, entry) for key, entry in value.items() if name or key != _FREE]
    elif isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        inner = [(str(number), entry) for number, entry in enumerate(value)]
    else:
        return {name: json.dumps(value, default=str)}
    found: dict[str, str] = {name: "nothing"} if name and not inner else {}
    for key, entry in inner:
        found |= _flat(entry, f"{name}.{key}".lstrip("."))
    return found


def _difference(run: Path, said: Mapping[str, Any], of_table: bool) -> str | None:
    """Return the first setting of a run that is not what its plan says, in a few words.

    Args:
        run: its directory.
        said: the settings by dotted name.
        of_table: True if it is to have the rounds that the plan says, and no more; and a setting
            that its version did not have is no difference.
    """
    try:
        config = RunDirectory(run).config()
    except UserError:
        return None  # who checks the run, or resumes it, says so
    for key, value in said.items():
        found = _find(config, key)
        if of_table and found is None:
            continue
        if key == "federation.rounds" and not of_table:  # a run may be made longer
            same = type(found) is int and found >= value
        elif key == "preset":  # only says where a config came from; files may be moved
            same = found is None or Path(str(found)).name == Path(value).name
        elif key == "plugins":  # contents are compared when the run is resumed
            known = {Path(str(plugin)).name for plugin in found or ()}
            same = {Path(plugin).name for plugin in value} <= known
        else:
            same = _is_same(found, value) or _amounts_to(config, key, value)
        if not same:
            shown = "not there" if found is None else strict_toml.inline(found)
            return f"{key} is {shown}, not {strict_toml.inline(value)}"
    return None


def _find(config: Mapping[str, Any], key: str) -> Any:
    """The setting of a dotted name, whose last part may have dots itself; None if there is none."""
    if key in config:
        return config[key]
    group, _, name = key.partition(".")
    inner = config.get(group)
    return _find(inner, name) if name and isinstance(inner, Mapping) else None


def _is_same(found: Any, value: Any) -> bool:
    if isinstance(found, str) and isinstance(value, str) and found.startswith("/"):
        # The path of a file, which a config has in full.
        return Path(found).name == Path(value).name
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)


def _amounts_to(config: Mapping[str, Any], key: str, value: Any) -> bool:
    """True if a config with this setting is the same: some can be written in several ways."""
    changed = copy.deepcopy(dict(config))
    try:
        put(changed, key, value)
        # A plan may be another user's file: what it names is not run, either, without consent.
        if plugin_consent.unknown(config) or plugin_consent.unknown(changed):
            return False
        return from_mapping(changed).mapping() == from_mapping(config).mapping()
    except UserError:
        return False
