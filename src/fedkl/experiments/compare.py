"""Comparisons: several algorithms, settings and seeds, and the references beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkl.config import config
from fedkl.config.checks import warn_of_doubts
from fedkl.config.config import Config, from_mapping
from fedkl.core.errors import UserError
from fedkl.core.text import with_article
from fedkl.experiments import additions, workers
from fedkl.experiments.grid import Axis, product_of
from fedkl.io.locks import lock_directory
from fedkl.learning.settings import ALL, FEDERATED, LOCAL, NONE
from fedkl.learning.trajectories import samples_in
from fedkl.server.selection.selectors import MeasuringSelector
from fedkl.server.settings import OWN, POOLED
from fedkl.training import growth
from fedkl.training.comparison import REFERENCES, ComparisonPlan, name_of
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run

__all__ = ["ComparisonPlan", "add", "create", "refuse_seen_seeds", "run_remaining"]


_GIVEN_OTHERWISE = {
    "seed": "how many seeds by --seeds N, and the first by --first-seed S",
    "algorithm.name": "algorithms by --algorithms",
}
"""Settings that every comparison varies by itself, and the options for them."""


def complete(plan: ComparisonPlan) -> ComparisonPlan:
    """A plan that also says which algorithm lacks a setting that is varied.

    Raises:
        UserError: an algorithm, a reference or a setting is given twice, or is unknown.
    """
    if not plan.algorithms:
        raise UserError("a comparison needs an algorithm at least; see `fedkl list`")
    if len({*plan.algorithms}) < len(plan.algorithms):
        raise UserError("--algorithms names an algorithm twice")
    if unknown := {*plan.references} - {*REFERENCES}:
        raise UserError(
            f"there is no reference {min(unknown)!r}; available: {', '.join(REFERENCES)}"
        )
    if taken := {*plan.references} & {*plan.algorithms}:
        raise UserError(
            f"--references has {with_article(min(taken))} of its own: give that algorithm another "
            "name"
        )
    return dataclasses.replace(plan, lacks=_lacks(plan) if plan.vary else {})


def _lacks(plan: ComparisonPlan) -> dict[str, list[str]]:
    """Find settings that are varied and that an algorithm does not have, but another one has; or
    that a reference decides by itself."""
    varied = dict.fromkeys(key for settings in plan.vary for key in settings)
    found = {
        algorithm: config.lacks(plan.preset, algorithm, varied, plan.plugins)
        for algorithm in plan.algorithms
    }
    nobodys = set.intersection(*map(set, found.values()))
    of_others = {name: [key for key in keys if key not in nobodys] for name, keys in found.items()}
    plain = config.lacks(plan.preset, ALGORITHM, varied, plan.plugins)
    for name in plan.references:
        decides = DECIDES[name]
        of_others[name] = [key for key in varied if key in plain or key.startswith(decides)]
    return {name: keys for name, keys in of_others.items() if keys}


def notes(plan: ComparisonPlan) -> list[str]:
    """Say of each algorithm that lacks something what that means."""
    lines = []
    for name, keys in plan.lacks.items():
        of_a_reference = name in plan.references
        joined = (", " if of_a_reference else ", no ").join(keys)
        has_no = "does not go by" if of_a_reference else "has no"
        lines.append(f"{name} {has_no} {joined}: it is trained once for all values")
    return lines


def config_of(plan: ComparisonPlan, algorithm: str, seed: int, varied: Mapping[str, Any]) -> Config:
    """The config of one of a plan's runs.

    Args:
        plan: says what all runs share.
        algorithm: or a reference.
        seed: of the run.
        varied: the settings that set it apart.

    Raises:
        UserError: a setting is wrong.
    """
    shared = {additions.ROUNDS: plan.rounds} if plan.rounds else {}
    chosen = additions.settings_given(plan.settings) | shared | dict(varied)
    if algorithm not in plan.references:
        return config.preset(plan.preset, algorithm, seed, chosen, plan.plugins)
    lacking = config.lacks(plan.preset, ALGORITHM, chosen, plan.plugins)
    own = {key: value for key, value in chosen.items() if key not in lacking}
    return MAKE[algorithm](config.preset(plan.preset, ALGORITHM, seed, own, plan.plugins))


Configure = Callable[[str, int, Mapping[str, Any]], Config]
"""The config of an algorithm, a seed, and settings that are varied."""
Start = Callable[[Config], Config]
"""Lets a config start from another run's policy."""


def create(path: Path, plan: ComparisonPlan, configure: Configure) -> None:
    """Make the comparison's directory with all its runs at round 0.

    Args:
        path: a directory that does not exist or is empty.
        plan: what is compared.
        configure: makes the config of each run.

    Raises:
        UserError: a config is wrong or its settings were chosen on a seed of the plan (nothing is
            written then), or the directory exists.
    """
    configs = {
        name_of(cell, seed): configure(algorithm, seed, settings)
        for cell, (algorithm, settings) in plan.cells().items()
        for seed in plan.seeds
    }
    refuse_seen_seeds(configs.values(), plan.seeds)
    mappings = {name: config.mapping() for name, config in configs.items()}
    workers.create(path, plan, mappings, {n: c.pretrained for n, c in configs.items()})


def add(
    path: Path, before: ComparisonPlan, more: ComparisonPlan, warn: additions.Warn
) -> ComparisonPlan:
    """Add to a comparison; what is there stays, and is not trained again.

    Args:
        path: its directory.
        before: its plan (`additions.open_plan`).
        more: what it is to have as well; what is empty is as it was.
        warn: is notified of what need not stop it.

    Returns:
        The plan that it has now; the one before if there is nothing to add.

    Raises:
        UserError: what is asked for does not go together with what is there, or a config is wrong,
            or its settings were chosen on a seed of the plan; nothing is written then.
    """
    there = additions.rounds_in(before.run_paths(path))
    additions.require_known_code(path, before.settings, before.plugins, before.vary)
    plan = _united(path, before, more)
    additions.require_longer(more.rounds or None, there)
    lengths = {*there.values()}
    if lengths == {more.rounds}:  # as they are
        plan = dataclasses.replace(plan, rounds=before.rounds)
    cells, old = plan.cells(), before.cells()
    if any(cells.get(cell) != settings for cell, settings in old.items()):
        raise UserError(f"{path} cannot be added to: runs that it has would get other names")
    first = before.seeds[0]
    twins = {cell: of_run(RunDirectory(path / name_of(cell, first))) for cell in old}

    def config_like(*which: Any) -> Config:
        return additions.started_like(config_of(*which), next(iter(twins.values())))

    if more.settings or more.plugins or old.keys() != cells.keys():
        for cell, (algorithm, varied) in old.items():
            now = config_like(plan, algorithm, first, varied)
            additions.require_same_config(path / name_of(cell, first), twins[cell], now)
    rounds = plan.rounds or (max(lengths) if len(lengths) == 1 else None)
    configs: dict[str, Config] = {}
    for cell, (algorithm, varied) in cells.items():
        new = [seed for seed in plan.seeds if path / name_of(cell, seed) not in there]
        if new and cell in old:
            additions.require_same_code(path / name_of(cell, first), twins[cell], warn)
        for seed in new:
            twin = twins.get(cell)
            made = config_like(plan, algorithm, seed, varied) if twin is None else twin
            configs[name_of(cell, seed)] = additions.changed(made, seed, rounds)
        if cell not in old:
            made = additions.changed(configs[name_of(cell, first)], first, max(lengths))
            for other, twin in twins.items():
                if additions.changed(twin, first, max(lengths)).mapping() == made.mapping():
                    raise UserError(f"{cell} is {other} of {path} once more: it would be the same")
    refuse_seen_seeds(configs.values(), plan.seeds)
    if not configs and (plan.rounds, plan.jobs) == (before.rounds, before.jobs):
        return before
    unlike = (configs[name_of(cell, first)] for cell in cells if cell not in old)
    warn_of_doubts(unlike, warn)
    mappings = {name: made.mapping() for name, made in configs.items()}
    starts = {name: made.pretrained for name, made in configs.items()}
    growth.grow(path, before, plan, mappings, starts)
    return plan


def begin(
    path: Path,
    wanted: ComparisonPlan,
    seeds: additions.Seeds,
    vary: Sequence[Axis],
    more: bool,
    warn: additions.Warn,
    start: Start | None = None,
) -> tuple[ComparisonPlan, int]:
    """Make a comparison, or add to one.

    Args:
        path: its directory.
        wanted: what is asked for, but for seeds and what is varied.
        seeds: which, given those that are there.
        vary: the axes of what is varied.
        more: True to add to a comparison that is there.
        warn: is notified of what need not stop it.
        start: lets each of its configs start from a policy; None: from a new one, or of what is
            added, from where the others started.

    Returns:
        Its plan, and how many runs were made.

    Raises:
        UserError: as `create` and `add`.
    """
    for key, _ in (pair for axis in vary for pair in axis):
        if key in _GIVEN_OTHERWISE:
            raise UserError(f"{key} is not for --vary: give {_GIVEN_OTHERWISE[key]}")
    before = additions.open_plan(ComparisonPlan, path, warn) if more else ComparisonPlan()
    fixed = [*additions.settings_given(wanted.settings or before.settings)]
    fixed += [additions.ROUNDS] if wanted.rounds else []
    points = tuple(product_of(vary, fixed, "--vary")) if vary else ()
    wanted = dataclasses.replace(wanted, seeds=seeds(before.seeds), vary=points)
    if more:
        if start is not None:
            raise UserError(
                f"what is added to {path} starts from where its runs started: leave --from out"
            )
        plan = add(path, before, wanted, warn)
    else:
        plan = complete(wanted)

        def configure(algorithm: str, seed: int, varied: Mapping[str, Any]) -> Config:
            made = config_of(plan, algorithm, seed, varied)
            return made if start is None else start(made)

        of_first_seed = (configure(name, plan.seeds[0], own) for name, own in plan.cells().values())
        warn_of_doubts(of_first_seed, warn)
        create(path, plan, configure)
    return plan, len(plan.run_paths(path)) - len(before.run_paths(path))


def _united(path: Path, before: ComparisonPlan, more: ComparisonPlan) -> ComparisonPlan:
    keys = list(dict.fromkeys(key for settings in before.vary for key in settings))
    if keys and any({*settings} != {*keys} for settings in more.vary):
        raise UserError(
            f"{path} varies {', '.join(keys)}: --vary must give values of the same settings"
        )
    if more.rounds and additions.ROUNDS in (*keys, *(key for one in more.vary for key in one)):
        raise UserError(f"{path} varies {additions.ROUNDS}, so that --rounds says nothing of it")
    # What was made without --vary has the preset's own values.
    levels = before.vary or (({},) if more.vary else ())
    ordered = [{key: one[key] for key in keys or one} for one in more.vary]
    return complete(
        dataclasses.replace(
            before,
            preset=additions.same_preset(before.preset, more.preset, path),
            algorithms=_with(before.algorithms, more.algorithms),
            references=_with(before.references, more.references),
            seeds=_with(before.seeds, more.seeds),
            vary=(*levels, *(one for one in ordered if one not in levels)),
            settings=more.settings or before.settings,
            plugins=more.plugins or before.plugins,
            rounds=more.rounds or before.rounds,
            jobs=more.jobs or before.jobs,
        )
    )


def _with(some: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*some, *(one for one in more if one not in some))


def refuse_seen_seeds(configs: Iterable[Config], seeds: Collection[int]) -> None:
    """Refuse to judge settings on seeds that they were chosen on.

    Raises:
        UserError: settings of these configs were chosen on one of the seeds.
    """
    seen = {seed for config in configs for seed in config.tuned_on}
    if overlap := sorted(seen & {*seeds}):
        raise UserError(
            f"settings were chosen on seeds {', '.join(map(str, overlap))} (tuned_on), which "
            "cannot judge them; give others with --first-seed"
        )


def run_remaining(path: Path, plan: ComparisonPlan, train: workers.Trainer) -> None:
    """Train the remaining rounds of a comparison's runs.

    Args:
        path: the comparison's directory.
        plan: its plan.
        train: trains them, `plan.jobs` at a time where they are processes here.

    Raises:
        UserError: a run could not be finished; the others were.
    """
    with lock_directory(path):
        train(plan.run_paths(path), plan.jobs)


ALGORITHM = "fedavg"
"""Whose local training references have: it adds nothing."""

DECIDES = {
    "alone": (
        "federation.personal",
        "federation.data",
        "federation.critic",
        "federation.observation_statistics",
        "federation.reward_statistics",
        "learner.personal_iterations",
        "aggregation.",
        "upload.",
        "heterogeneity.",
    ),
    "centralised": (
        "federation.personal",
        "federation.data",
        "federation.observation_statistics",
        "federation.extra",
        "federation.quorum",
        "learner.personal_iterations",
        "selection.",
        "aggregation.",
        "upload.",
        "heterogeneity.",
    ),
}
"""The settings, or groups of them, that a reference decides by itself."""


def alone(config: Config) -> Config:
    """Each client by itself: trained when the federation would train it, from where it was.

    Raises:
        UserError: the config's algorithm is not for clients that learn alone.
    """
    values = _plain(config)
    federation = values["federation"]
    federation |= {"personal": ALL, "data": OWN, "critic": LOCAL}
    for name in ("observation_statistics", "reward_statistics"):
        if federation[name] == FEDERATED:
            federation[name] = LOCAL
    if values["learner"].get("c2_across_rounds") == "averaged":
        values["learner"]["c2_across_rounds"] = "kept"
    if isinstance(config.selection, MeasuringSelector):  # there is nothing to measure
        values["selection"] = {}
    return from_mapping(values)


def centralised(config: Config) -> Config:
    """One learner that has everybody's data: client 0, with K times the steps in an iteration.

    Raises:
        UserError: the clients are agents of one simulation.
    """
    if config.world.is_shared:
        raise UserError(
            f"nobody can learn from all data in the world {config.world.title}, whose clients are "
            "agents of one simulation; `--references alone` does without"
        )
    values = _plain(config)
    clients, k = config.federation.clients, config.federation.clients_per_round
    values["federation"] |= {"data": POOLED, "clients_per_round": 1, "extra": 0, "quorum": 1}
    if config.federation.observation_statistics == LOCAL:
        values["federation"]["observation_statistics"] = FEDERATED
    values["learner"]["steps"] = k * samples_in(config.world, config.learner)
    values["selection"] = {"name": "weighted", "weights": [1.0, *[0.0] * (clients - 1)]}
    return from_mapping(values)


MAKE: dict[str, Callable[[Config], Config]] = {"alone": alone, "centralised": centralised}
"""By the names that comparisons have for them (`fedkl.training.comparison.REFERENCES`)."""


def _plain(config: Config) -> dict[str, Any]:
    """A config without what a federation may add to the mean of clients' policies."""
    values = config.mapping()
    values["federation"]["personal"] = NONE
    values["learner"]["personal_iterations"] = 0
    values["heterogeneity"]["every"] = 0
    values["aggregation"] = {}
    values.pop("upload", None)
    return values
