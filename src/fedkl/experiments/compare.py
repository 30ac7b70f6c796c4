"""Comparisons: several algorithms, settings and seeds, and the references beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedkl.config.config import Config, from_mapping
from fedkl.core.errors import UserError
from fedkl.experiments import workers
from fedkl.io.locks import lock_directory
from fedkl.learning.settings import ALL, FEDERATED, LOCAL, NONE
from fedkl.learning.trajectories import samples_in
from fedkl.server.selection.selectors import Measured
from fedkl.server.settings import OWN, POOLED
from fedkl.training.comparison import Plan, name_of
from fedkl.worlds import SharedWorld

__all__ = ["Plan", "create", "refuse_seen_seeds", "run_remaining"]

Configure = Callable[[str, int, Mapping[str, Any]], Config]
"""The config of an algorithm, a seed, and settings that are varied."""


def create(path: Path, plan: Plan, configure: Configure) -> None:
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


def run_remaining(path: Path, plan: Plan, train: workers.Trainer) -> None:
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
    if isinstance(config.selection, Measured):  # there is nothing to measure
        values["selection"] = {}
    return from_mapping(values)


def centralised(config: Config) -> Config:
    """One learner that has everybody's data: client 0, with K times the steps in an iteration.

    Raises:
        UserError: the clients are agents of one simulation.
    """
    if isinstance(config.world, SharedWorld):
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
