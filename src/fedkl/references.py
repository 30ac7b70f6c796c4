"""What a federation is compared with: each client alone, and all data in one place.

Both are made of the config of a federation, train as its clients do, and have its budget of
environment steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedkl.config import Config, from_mapping
from fedkl.errors import UserError
from fedkl.learning.sharing import ALL, FEDERATED, LOCAL, NONE
from fedkl.learning.trajectories import samples_in
from fedkl.server.selection.measured import Measured
from fedkl.server.settings import OWN, POOLED
from fedkl.worlds import SharedWorld

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
    if config.learner.c2_across_rounds == "averaged":
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
"""By the names that comparisons have for them (`fedkl.runs.comparison.REFERENCES`)."""


def _plain(config: Config) -> dict[str, Any]:
    """A config without what a federation may add to the mean of clients' policies."""
    values = config.mapping()
    values["federation"]["personal"] = NONE
    values["learner"]["personal_iterations"] = 0
    values["heterogeneity"]["every"] = 0
    values["aggregation"] = {}
    return values
