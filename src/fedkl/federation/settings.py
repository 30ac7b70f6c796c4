"""The settings of the federation loop and of evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from fedkl.settings import setting

WHERE = ("federated", "local")
STATISTICS = (*WHERE, "none")


@dataclass(frozen=True)
class FederationSettings:
    """Who takes part, for how long, and what is shared."""

    clients: int = setting(60, "N: clients in the federation", low=1, high=10_000_000)
    clients_per_round: int = setting(3, "K: clients selected in a round", low=1)
    rounds: int = setting(200, "communication rounds", low=1)
    critic: str = setting(
        "federated",
        "the critic is averaged like the policy, or each client keeps its own",
        choices=WHERE,
    )
    observation_statistics: str = setting(
        "federated",
        "running mean and deviation of observations: merged exactly by the server, kept by each "
        "client, or not used",
        choices=STATISTICS,
    )
    reward_statistics: str = setting(
        "federated",
        "likewise the running deviation that rewards are divided by",
        choices=STATISTICS,
    )
    retries: int = setting(
        1, "how often a client whose update is invalid is run again with a fresh key", low=0
    )
    max_relative_norm: float = setting(
        10.0,
        "an update is invalid when it moves the parameters by more than this times their norm "
        "(at least 1)",
        above=0,
    )
    clients_at_once: int = setting(
        0,
        "clients trained in one vmapped call; 0: one on a CPU (with a thread for each core), all "
        "K on an accelerator",
        low=0,
    )


@dataclass(frozen=True)
class EvaluationSettings:
    """How the global policy is evaluated on all clients."""

    episodes: int = setting(20, "episodes for each client", low=1)
    every: int = setting(1, "evaluate after every so many rounds, and after the last", low=1)


@dataclass(frozen=True)
class CheckpointSettings:
    """When a run is saved."""

    every: int = setting(1, "save after every so many rounds, and after the last", low=1)
