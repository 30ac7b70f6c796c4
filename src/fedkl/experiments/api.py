"""Comparisons and tunings from Python, as the commands do them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from fedkl.config.config import Config, preset
from fedkl.core.arguments import run_path, whole
from fedkl.core.errors import UserError
from fedkl.experiments import additions, candidates
from fedkl.experiments import compare as comparisons
from fedkl.experiments import tune as tunings
from fedkl.experiments.additions import ROUNDS, texts_of
from fedkl.experiments.grid import axes_of
from fedkl.experiments.progress import CallbacksOf, follow

Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def _none(run: Path) -> tuple[()]:
    return ()


def compare(
    config: str | Path | Config,
    run: str | Path,
    algorithms: Sequence[str] = (),
    seeds: int | Sequence[int] | None = None,
    *,
    vary: Grid = (),
    references: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,
    rounds: int | None = None,
    plugins: Iterable[str | Path] = (),
    jobs: int | None = None,
    add: bool = False,
    callbacks: CallbacksOf = _none,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Train several algorithms and settings with several seeds, and report: `fedkl compare`.

    Args:
        config: a preset, a file that ends in .toml, or a config, whose seed does not count; all
            runs start from the policy that it starts from (`fedkl.start_from`), if it does.
        run: the comparison's directory; one that does not exist, unless `add` is given.
        algorithms: which; none: the config's own.
        seeds: how many, from 0 on (default: 3), or which.
        vary: settings to compare too, and the values of each: of one table they are multiplied, in
            each table of a list they move together.
        references: `alone` (each client by itself), `centralised` (all data in one place).
        set: changes of settings, as `fedkl.preset` takes them.
        rounds: communication rounds; None: the preset's own.
        plugins: Python files with algorithms, worlds or links of your own.
        jobs: runs at a time, each in a process of its own; None: 1.
        add: add all of this to the comparison that is there. What it has is not trained again, and
            what is left out is as it was; with nothing new, what was stopped is resumed.
        callbacks: makes the callbacks of a run, given its directory, called in this process.
        progress: show how far it is, and how long it takes.

    Returns:
        The rows of the report's table, as `fedkl compare --json` prints them. The page is in the
        directory.

    Raises:
        UserError: something is wrong, and nothing was written; or a run could not be finished.
    """
    from fedkl.report import load_runs, records, write_report
    from fedkl.report.pictures import require_matplotlib

    require_matplotlib()
    path = run_path(run)
    origin, given, own = _origin(config, set, rounds, plugins)
    wanted = comparisons.ComparisonPlan(
        **origin,
        algorithms=_names("algorithms", algorithms) or (() if add else (own,)),
        references=_names("references", references),
        jobs=_jobs(jobs, add),
        rounds=additions.rounds_of(given),
    )
    axes = axes_of(vary, "vary")
    start = None
    if isinstance(config, Config) and config.pretrained is not None:
        start = partial(additions.started_like, other=config)
    comparisons.begin(path, wanted, partial(_seeds, seeds, 0), axes, add, _warn, start)
    plan = comparisons.ComparisonPlan.read(path)
    remaining = partial(comparisons.run_remaining, path, plan)
    follow(plan.run_paths(path), remaining, None, _console(progress), callbacks=callbacks)
    runs = load_runs(path, warn=_warn)
    write_report(path, runs, None, [path])
    return [dict(row) for row in records(runs, None)]


def tune(
    config: str | Path | Config,
    run: str | Path,
    grid: Grid = (),
    algorithm: str | None = None,
    seeds: int | Sequence[int] | None = None,
    *,
    halvings: int | None = None,
    set: Mapping[str, Any] | None = None,
    rounds: int | None = None,
    plugins: Iterable[str | Path] = (),
    jobs: int | None = None,
    add: bool = False,
    callbacks: CallbacksOf = _none,
    progress: bool = True,
) -> dict[str, Any]:
    """Choose an algorithm's settings from a grid by successive halving: `fedkl tune`.

    Args:
        config: a preset, a file that ends in .toml, or a config, whose seed does not count.
        run: the tuning's directory; one that does not exist, unless `add` is given.
        grid: settings and the values to try, as `vary` of `fedkl.compare`.
        algorithm: whose settings; None: the config's own.
        seeds: how many, from 1000 on (default: 3), or which.
        halvings: how often the worse half is dropped; None: 2, fewer where rounds or candidates are
            too few.
        set: changes of settings that all candidates share.
        rounds: communication rounds; None: the preset's own.
        plugins: Python files with algorithms, worlds or links of your own.
        jobs: runs at a time, each in a process of its own; None: 1.
        add: add seeds, candidates or rounds to the tuning that is there.
        callbacks: makes the callbacks of a run, given its directory, called in this process.
        progress: show how far it is, and how long it takes.

    Returns:
        The best settings, by dotted name: `fedkl.preset(..., set=best)`. The directory has them as
        a config file (best.toml), and all that was tried (tuning.json).

    Raises:
        UserError: something is wrong, and nothing was written; or a run could not be finished.
    """
    path = run_path(run)
    origin, given, own = _origin(config, set, rounds, plugins)
    if isinstance(config, Config) and config.start_from:
        raise UserError("a tuning starts from new policies: give a config without start_from")
    if not add and not grid:
        raise UserError("grid must say what to try, such as {'learner.d_local': [0.01, 0.02]}")
    if halvings is not None:
        whole("halvings", halvings, 0)
    request = candidates.TuningRequest(
        tunings.TuningPlan(
            **origin, algorithm=algorithm or ("" if add else own), jobs=_jobs(jobs, add)
        ),
        partial(_seeds, seeds, 1000),
        axes_of(grid, "grid"),
        additions.rounds_of(given),
        halvings,
    )
    candidates.begin(path, request, add, _warn)
    plan = tunings.TuningPlan.read(path)
    remaining = partial(tunings.run_remaining, path, plan)
    shown = _console(progress)
    result = follow(plan.run_paths(path), remaining, None, shown, plan.rounds, callbacks)
    winner = tunings.write_tried(path, plan, result, tunings.tried(path, plan, result))
    tunings.write_best(path, plan, plan.algorithm, winner.settings)
    return dict(winner.settings)


def _origin(
    config: str | Path | Config,
    set: Mapping[str, Any] | None,
    rounds: int | None,
    plugins: Iterable[str | Path],
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Say what a plan begins with.

    Returns:
        Its preset, settings and plugins; all settings with the rounds; and the algorithm that it
        has if nobody says another.
    """
    given = {} if set is None else dict(set)
    if rounds is not None and ROUNDS in given:
        raise UserError(f"{ROUNDS} is given twice: as {given[ROUNDS]!r} and as {rounds!r}")
    if rounds is not None:
        given[ROUNDS] = whole("rounds", rounds, 1)
    files = [str(Path(plugin).resolve()) for plugin in plugins]
    if isinstance(config, Config):
        changes, more = _changes(config)
        name, algorithm = config.preset, config.algorithm.name
        given, files = changes | given, [*more, *files]
    else:
        chosen = preset(config, plugins=files)
        name, algorithm = str(config), chosen.algorithm.name
    name = str(Path(name).resolve()) if name.endswith(".toml") else name
    settings = texts_of({key: value for key, value in given.items() if key != ROUNDS})
    return {"preset": name, "settings": settings, "plugins": tuple(files)}, given, algorithm


def _changes(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Return the settings in which a config differs from its preset, and its own plugins.

    Raises:
        UserError: its preset is gone, or it cannot be said so.
    """
    name, algorithm, seed = config.preset, config.algorithm.name, config.seed
    base = preset(name, algorithm, seed)
    files = [file for file in config.plugins if file not in base.plugins]
    had, has = _flat(base.mapping()), _flat(config.mapping())
    changes = {key: value for key, value in has.items() if had.get(key) != value}
    again = additions.started_like(preset(name, algorithm, seed, changes, files), config)
    if again.mapping() != config.mapping():
        raise UserError(
            f"this config cannot be said as {name} with other settings; give the preset, or a file "
            "that ends in .toml, and set={...}"
        )
    return changes, files


def _flat(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, but for those that a comparison has in other places."""
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        flat |= {f"{name}.{key}": item for key, item in inner} or {name: value}
    elsewhere = ("seed", "preset", "plugins", "algorithm.name", "start_from")
    return {name: value for name, value in flat.items() if name not in elsewhere}


def _seeds(
    seeds: int | Sequence[int] | None, default: int, there: tuple[int, ...]
) -> tuple[int, ...]:
    if not isinstance(seeds, Iterable):
        count = None if seeds is None else whole("seeds", seeds, 1)
        return additions.seeds_of(count, None, default, there)
    named = [whole("a seed", seed, 0) for seed in seeds]
    if not named:
        raise UserError("seeds must name a seed at least")
    return tuple(dict.fromkeys((*there, *named)))


def _names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{argument} must be a list of names, not {names!r}")
    return tuple(names)


def _jobs(jobs: int | None, add: bool) -> int:
    return (0 if add else 1) if jobs is None else whole("jobs", jobs, 1)


def _console(progress: bool) -> Console | None:
    return Console(stderr=True, highlight=False, markup=False) if progress else None
