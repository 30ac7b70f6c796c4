"""The candidates of a tuning: a tuning is made of them, and may be given more.

A run is a function of its config, and a rung is judged by the rounds up to it alone. So more seeds,
more candidates and more rounds all come to what a tuning of that size would have come to: all rungs
are judged again, candidates that were dropped may come back, and no round is trained twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fedkl.config.checks import warn_of_doubts
from fedkl.config.config import Config, preset
from fedkl.core.errors import UserError
from fedkl.experiments import additions
from fedkl.experiments.additions import ROUNDS, Seeds, Warn, settings_given
from fedkl.experiments.grid import Axis, Candidate, candidates_of
from fedkl.experiments.tune import TuningPlan, create, rungs
from fedkl.training import growth
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run


class TuningRequest(NamedTuple):
    """A tuning as it is asked for; of what is to be added, what is empty is as it was."""

    plan: TuningPlan
    """Preset, algorithm, settings, plugins and jobs."""
    seeds: Seeds
    grid: Sequence[Axis]
    rounds: int
    """0: the preset's own."""
    halvings: int | None
    """None: as many as are sensible."""


def begin(path: Path, request: TuningRequest, more: bool, warn: Warn) -> tuple[TuningPlan, int]:
    """Make a tuning, or add to one.

    Args:
        path: its directory.
        request: what is asked for.
        more: True to add to a tuning that is there.
        warn: is notified of what need not stop it.

    Returns:
        Its plan, and how many runs were made.

    Raises:
        UserError: what is asked for is wrong, or does not go together with what is there; nothing
            is written then.
    """
    if more:
        before = additions.open_plan(TuningPlan, path, warn)
        plan = _add(path, before, request, warn)
        return plan, len(plan.run_paths(path)) - len(before.run_paths(path))
    rounds = {ROUNDS: request.rounds} if request.rounds else {}
    given = settings_given(request.plan.settings) | rounds
    plan = dataclasses.replace(
        request.plan,
        seeds=request.seeds(()),
        candidates=tuple(candidates_of(request.grid, given)),
    )
    chosen = given | plan.candidates[0]
    first = preset(plan.preset, plan.algorithm, plan.seeds[0], chosen, plan.plugins)
    every = first.evaluation.every
    judged = rungs(first.federation.rounds, request.halvings, len(plan.candidates), every)
    plan = dataclasses.replace(plan, rungs=judged, evaluated_every=every)
    warn_of_doubts((config_of(plan, one, plan.seeds[0]) for one in plan.candidates), warn)
    create(path, plan, partial(config_of, plan))
    return plan, len(plan.run_paths(path))


def config_of(plan: TuningPlan, candidate: Candidate, seed: int) -> Config:
    """The config of one of a plan's runs.

    Args:
        plan: says what all runs share.
        candidate: the settings that set it apart.
        seed: of the run.

    Raises:
        UserError: a setting is wrong.
    """
    chosen = settings_given(plan.settings) | {ROUNDS: plan.rungs[-1]} | candidate
    return preset(plan.preset, plan.algorithm, seed, chosen, plan.plugins)


def _add(path: Path, before: TuningPlan, request: TuningRequest, warn: Warn) -> TuningPlan:
    additions.require_known_code(path, before.settings, before.plugins, before.candidates)
    plan = _united(path, before, request)
    there = additions.rounds_in(before.run_paths(path))
    old = [path / before.name_of(number, plan.seeds[0]) for number in range(len(before.candidates))]
    twins = [of_run(RunDirectory(run)) for run in old]
    new = plan.candidates[len(old) :]
    if new or request.plan.settings or request.plan.plugins:
        for run, twin, candidate in zip(old, twins, before.candidates, strict=True):
            now = config_of(plan, candidate, plan.seeds[0])
            additions.require_same_config(run, twin, now)
    configs: dict[str, Config] = {}
    for number, candidate in enumerate(plan.candidates):
        names = {seed: plan.name_of(number, seed) for seed in plan.seeds}
        seeds = [seed for seed, name in names.items() if path / name not in there]
        if seeds and number < len(old):
            additions.require_same_code(old[number], twins[number], warn)
        for seed in seeds:
            made = twins[number] if number < len(old) else config_of(plan, candidate, seed)
            configs[names[seed]] = additions.changed(made, seed, plan.rungs[-1])
    if not configs and (plan.rungs, plan.jobs) == (before.rungs, before.jobs):
        return before
    warn_of_doubts((config_of(plan, one, plan.seeds[0]) for one in new), warn)
    growth.grow(path, before, plan, {name: made.mapping() for name, made in configs.items()})
    return plan


def _united(path: Path, before: TuningPlan, request: TuningRequest) -> TuningPlan:
    if request.plan.algorithm not in ("", before.algorithm):
        raise UserError(
            f"{path} tunes {before.algorithm}, not {request.plan.algorithm}: an algorithm has a "
            "tuning of its own"
        )
    if request.halvings not in (None, len(before.rungs) - 1):
        raise UserError(
            f"{path} has {len(before.rungs) - 1} halvings, which cannot be changed: it would be "
            "another tuning"
        )
    if request.rounds and request.rounds < before.rungs[-1]:
        raise UserError(
            f"--rounds must be at least {before.rungs[-1]}, which {path} has, not {request.rounds}"
        )
    given = settings_given(request.plan.settings or before.settings)
    keys = [*before.candidates[0]]
    points = candidates_of(request.grid, given) if request.grid else []
    if any({*point} != {*keys} for point in points):
        raise UserError(f"{path} tunes {', '.join(keys)}: --grid must have values of all of them")
    ordered = [{key: point[key] for key in keys} for point in points]
    plan = dataclasses.replace(
        before,
        preset=additions.same_preset(before.preset, request.plan.preset, path),
        settings=request.plan.settings or before.settings,
        plugins=request.plan.plugins or before.plugins,
        seeds=request.seeds(before.seeds),
        candidates=(*before.candidates, *(one for one in ordered if one not in before.candidates)),
        jobs=request.plan.jobs or before.jobs,
    )
    if request.rounds > before.rungs[-1]:
        halvings, every = len(before.rungs) - 1, before.evaluated_every
        judged = rungs(request.rounds, halvings, len(plan.candidates), every)
        plan = dataclasses.replace(plan, rungs=judged)
    if plan.name_of(0, 0) != before.name_of(0, 0):  # runs keep their names
        digits = len(str(len(before.candidates) - 1))
        plan = dataclasses.replace(plan, digits=digits)
    return plan
