"""Growth of a directory of several runs: more of them, or longer ones, all at once.

DIR/.adding   the plan that the directory is to have, and the runs that it gains

All of it is made aside and renamed, and by that it is decided: whoever finds the folder completes
what it says, the process that made it or, where that was killed, `fedkl resume`. Nothing of the
runs that are there is written but their copy of the plan and, where they are made longer,
`federation.rounds`.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedkl.config.config import put
from fedkl.config.pretrained import Pretrained
from fedkl.core.errors import UserError
from fedkl.io import files
from fedkl.io.locks import lock_directory
from fedkl.training import binding
from fedkl.training.comparison import runs_in
from fedkl.training.directory import RunDirectory
from fedkl.training.plans import ADDING, RunsPlan


def grow(
    path: Path,
    before: RunsPlan,
    plan: RunsPlan,
    configs: Mapping[str, Mapping[str, Any]],
    starts: Mapping[str, Pretrained | None] = MappingProxyType({}),
) -> None:
    """Make a directory one of a larger plan, all at once.

    Args:
        path: the directory, whose plan and runs agree.
        before: its plan.
        plan: the plan that it is to have.
        configs: the name of each run that is made, and its config as TOML can hold it.
        starts: what these start from, if not from a new policy.

    Raises:
        UserError: another process trains some of its runs or has added to it, or something is in
            the way; nothing is written then.
    """
    with lock_directory(path):
        if type(plan).read(path) != before:
            raise UserError(f"{path / plan.FILE} was changed meanwhile; give the command again")
        for name in configs:
            if (path / name).exists():
                raise UserError(f"{path / name} is in the way of a new run; move it elsewhere")
        with files.explain_os_errors("create", path / ADDING):
            for left in path.glob(f"{ADDING}.*"):  # of a process that was killed before it decided
                shutil.rmtree(left)
            aside = path / f"{ADDING}.{secrets.token_hex(4)}"
            aside.mkdir()
        try:
            with _longer_ones_held(path, plan):
                binding.make_runs(plan, aside, configs, starts)
                plan.write(aside)
                with files.explain_os_errors("create", path / ADDING):
                    aside.rename(path / ADDING)
                    files.sync_directory(path)
                _carry_out(path, plan)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def complete(kinds: Sequence[type[RunsPlan]], path: Path) -> bool:
    """Complete what was being added to a directory, if that was interrupted.

    Args:
        kinds: of plans.
        path: the directory.

    Returns:
        True if there was something.

    Raises:
        UserError: another process writes there, or what was being added is damaged.
    """
    aside = path / ADDING
    files.refuse_link(aside)
    if not aside.exists():
        return False
    with lock_directory(path):
        there = [kind for kind in kinds if kind.is_in(aside)]
        if len(there) != 1:
            raise UserError(f"{aside} has no plan, and so cannot be completed; remove it")
        plan = there[0].read(aside)
        with _longer_ones_held(path, plan):
            _carry_out(path, plan)
    return True


def _carry_out(path: Path, plan: RunsPlan) -> None:
    """Do what is decided; it may have been begun."""
    for made in runs_in(path / ADDING):
        with files.explain_os_errors("create", path / made.name):
            made.rename(path / made.name)
    for run, rounds in _shorter(path, plan):
        config = run.config()
        put(config, "federation.rounds", rounds)
        run.replace_config(config)
    for place in plan.run_paths(path):
        if (place / "config.toml").is_file():
            binding.bind(plan, place)
    plan.write(path)
    done = path / f"{ADDING}.{secrets.token_hex(4)}"
    with files.explain_os_errors("clean", path / ADDING):
        (path / ADDING).rename(done)  # at once, so that no process finds a part of it
    shutil.rmtree(done, ignore_errors=True)


def _shorter(path: Path, plan: RunsPlan) -> list[tuple[RunDirectory, int]]:
    """The runs that have fewer rounds than a plan says, and how many it says."""
    found = []
    for name, settings in plan.settings_by_run().items():
        wanted = settings.get("federation.rounds")
        if wanted is not None and (path / name / "config.toml").is_file():
            run = RunDirectory(path / name)
            if run.config().get("federation", {}).get("rounds", wanted) < wanted:
                found.append((run, wanted))
    return found


@contextlib.contextmanager
def _longer_ones_held(path: Path, plan: RunsPlan) -> Iterator[None]:
    """Hold the runs that a plan makes longer, so that no process trains them meanwhile."""
    with contextlib.ExitStack() as held:
        for run, _ in _shorter(path, plan):
            held.enter_context(run.lock())
        yield
