"""Adding to a comparison, a tuning or an experiment: what they have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedkl.config.config import Config, from_mapping, parse_assignment, put
from fedkl.core.errors import UserError
from fedkl.io import strict_toml
from fedkl.training import binding, growth, plugin_consent
from fedkl.training.directory import RunDirectory
from fedkl.training.origin import decode, differences, listed, settings_of
from fedkl.training.plans import ADDING, PLANS, RunsPlan
from fedkl.training.plugin_consent import of_run
from fedkl.training.provenance import origin_of

P = TypeVar("P", bound=RunsPlan)
Warn = Callable[[str], None]
Seeds = Callable[[tuple[int, ...]], tuple[int, ...]]
"""The seeds of a plan, given those that are there."""
SEEDS = 3
"""The default number of seeds."""
ROUNDS = "federation.rounds"


def open_plan(kind: type[P], path: Path, warn: Warn) -> P:
    """Read the plan of a directory that is to be added to, once its runs agree with it.

    Args:
        kind: of plan.
        path: the directory.
        warn: is notified of what need not stop it.

    Raises:
        UserError: there is no such plan, or its runs are not those that it says.
    """
    if not kind.is_in(path) and not (path / ADDING).exists():
        raise UserError(f"{path} does not hold {PLANS[kind.FILE]}: it has no {kind.FILE}")
    growth.complete([kind], path)
    plan = kind.read(path)
    binding.require(plan, path, warn)
    return plan


def seeds_of(
    count: int | None, first: int | None, default: int, there: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the seeds of a plan, in the order in which they are trained.

    Args:
        count: how many; None: `SEEDS`, or those that are there.
        first: the first of them; None: the default, or the first that is there.
        default: the first one of a new plan.
        there: those that a plan has that is added to.

    Raises:
        UserError: that is no number of seeds, or fewer than there are.

    Example:
        >>> seeds_of(2, None, 1000), seeds_of(7, None, 0, there=(0, 1, 2, 3, 4))
        ((1000, 1001), (0, 1, 2, 3, 4, 5, 6))
        >>> seeds_of(2, 10, 0, there=(0, 1, 2))
        (0, 1, 2, 10, 11)
    """
    for name, value, low in (("--seeds", count, 1), ("--first-seed", first, 0)):
        if value is not None and value < low:
            raise UserError(f"{name} must be at least {low}, not {value}")
    if there and count is None:
        if first is not None:
            raise UserError("--first-seed says where seeds begin: say with --seeds how many")
        return there
    begin = first if first is not None else min(there, default=default)
    wanted = range(begin, begin + (SEEDS if count is None else count))
    if there and first is None and {*wanted} < {*there}:
        raise UserError(
            f"--seeds {count} counts all seeds, and there are {len(there)} already: to add two, "
            f"say --seeds {len(there) + 2}"
        )
    return (*there, *(seed for seed in wanted if seed not in there))


def rounds_of(settings: Mapping[str, Any]) -> int:
    """Return the rounds that settings give; 0 if they give none.

    Raises:
        UserError: that is no number of rounds.
    """
    given = settings.get(ROUNDS)
    if given is not None and (type(given) is not int or given < 1):
        raise UserError(f"{ROUNDS} must be at least 1, not {given}")
    return given or 0


def texts_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Write settings as --set takes them.

    Example:
        >>> texts_of({"learner.d_local": 0.02, "algorithm.distance": "kl"})
        ('learner.d_local=0.02', 'algorithm.distance="kl"')
    """
    return tuple(f"{key}={strict_toml.inline(value)}" for key, value in settings.items())


def settings_given(texts: Iterable[str]) -> dict[str, Any]:
    """Read what --set gave; the rounds have a place of their own in a plan.

    Raises:
        UserError: a text is not a setting.
    """
    given = dict(map(parse_assignment, texts))
    return {key: value for key, value in given.items() if key != ROUNDS}


def same_preset(before: str, now: str, path: Path) -> str:
    """The preset that a plan keeps when it is added to.

    Raises:
        UserError: another one is given.
    """
    same = Path(before).name == Path(now).name if now.endswith(".toml") else before == now
    if not same:
        raise UserError(f"the runs of {path} are made from {before}, not from {now}")
    return now


def started_like(config: Config, other: Config) -> Config:
    """A config that starts from the policy that another one starts from, if that does."""
    if other.pretrained is None:
        return config
    return from_mapping(config.mapping() | {"start_from": other.start_from}, other.pretrained)


def changed(config: Config, seed: int, rounds: int | None) -> Config:
    """A config with another seed, and with another number of rounds if one is given."""
    federation = config.federation
    if rounds is not None:
        federation = dataclasses.replace(federation, rounds=rounds)
    return dataclasses.replace(config, seed=seed, federation=federation)


def require_known_code(
    path: Path, settings: Iterable[str], plugins: Iterable[str], levels: Iterable[Mapping[str, Any]]
) -> None:
    """Require consent to the code that a directory's plan names: it may be another user's.

    Args:
        path: the directory.
        settings: as --set gave them.
        plugins: files.
        levels: settings that are varied.

    Raises:
        UserError: there is no consent to it.
    """
    for level in (*levels, {}):
        mapping: dict[str, Any] = {}
        for key, value in (settings_given(settings) | dict(level)).items():
            put(mapping, key, value)
        mapping["plugins"] = [*plugins, *mapping.get("plugins", ())]
        for name in ("gymnasium", "pettingzoo"):
            world = {**mapping.get("world", {}), "name": name}
            plugin_consent.require(mapping | {"world": world}, path)


def require_same_code(run: Path, config: Config, warn: Warn) -> None:
    """Require that what a run was made with is what there is now, so that a new one belongs to it.

    Raises:
        UserError: its config, plugins or worlds are others by now.
    """
    saved = RunDirectory(run).checkpoint(warn, best=False, rows=())
    if saved is None:
        return
    try:
        before = decode(saved.origin)
    except ValueError as error:
        raise UserError(f"{run}: the newest checkpoint cannot be used: {error}") from error
    now = origin_of(RunDirectory(run).config(), config)
    if before is None:
        return
    if changes := before.differences(now):
        raise UserError(f"{run} was made with something else: {listed(changes)}; put it back")
    if newer := before.newer_versions(now):
        warn(f"{run} was made by other versions than what is added to it: {newer}")


def require_same_config(run: Path, before: Config, now: Config) -> None:
    """Require that a run has the config that a command would give it now, but for its rounds.

    Raises:
        UserError: it has not; the sentence names the run and what differs.
    """
    had, wanted = settings_of(before.mapping()), settings_of(now.mapping())
    if found := differences(had | {"preset": ""}, wanted | {"preset": ""}):
        raise UserError(
            f"{run} was made with something else than this command says: {listed(found)}; say what "
            "the runs were made with, or begin anew in another directory"
        )


def rounds_in(runs: Iterable[Path]) -> dict[Path, int]:
    """The rounds that runs are to have, as their configs say."""
    return {run: of_run(RunDirectory.open(run)).federation.rounds for run in runs}


def require_longer(rounds: int | None, there: Mapping[Path, int]) -> None:
    """Require that a number of rounds is not below what any run is to have already.

    Raises:
        UserError: it is.
    """
    longest = max(there, key=lambda run: there[run])
    if rounds is not None and rounds < there[longest]:
        raise UserError(
            f"--rounds must be at least {there[longest]}, which {longest} has, not {rounds}"
        )
