"""The settings of the federation loop and of evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from fedkl.core.settings import setting
from fedkl.learning.settings import FEDERATED, LOCAL, NONE, PERSONAL, Sharing

WHERE = (FEDERATED, LOCAL)
STATISTICS = (*WHERE, NONE)
OWN, POOLED = "own", "pooled"


@dataclass(frozen=True)
class FederationSettings:
    """Participation, length, sharing and limits of a federation."""

    clients: int = setting(60, "N: clients in the federation", low=1, high=10_000_000)
    clients_per_round: int = setting(3, "K: clients selected in a round", low=1)
    extra: int = setting(
        0,
        "clients selected beyond K, should some fail: the first K valid updates count",
        low=0,
    )
    deadline: float = setting(
        600.0,
        "seconds that clients in a network have for an answer; in a simulation there is no limit",
        above=0,
    )
    rounds: int = setting(200, "communication rounds", low=1)
    critic: str = setting(
        FEDERATED,
        "the critic is averaged like the policy, or each client keeps its own",
        choices=WHERE,
    )
    observation_statistics: str = setting(
        FEDERATED,
        "running mean and deviation of observations: merged exactly by the server, kept by each "
        "client, or not used",
        choices=STATISTICS,
    )
    reward_statistics: str = setting(
        FEDERATED,
        "likewise the running deviation that rewards are divided by",
        choices=STATISTICS,
    )
    personal: str = setting(
        NONE,
        "the part of the policy that each client keeps to itself: nothing, what is added to its "
        "actions, the last layer, or all of it (each client learns alone)",
        choices=PERSONAL,
    )
    data: str = setting(
        OWN,
        "own: each client trains in its own world; pooled: whoever trains collects its episodes in "
        "the worlds of all, as a centralised learner would (in a simulation only)",
        choices=(OWN, POOLED),
    )
    retries: int = setting(
        1,
        "how often a client whose update is invalid is run again with a fresh key",
        low=0,
        high=100,
    )
    quorum: int = setting(
        1, "with fewer accepted updates than this, a round leaves the model as it is", low=1
    )
    max_empty_rounds: int = setting(
        10,
        "training gives up after so many rounds in a row that left the model as it is, or when all "
        "rounds of a run did",
        low=1,
    )
    max_relative_norm: float = setting(
        10.0,
        "an update is invalid when it moves the parameters by more than this times their norm "
        "(at least 1)",
        above=0,
    )
    max_statistics_factor: float = setting(
        20.0,
        "an update is invalid when its observations or rewards lie further than this from other "
        "clients', or deviate more than this, in what is usual among clients (their deviation plus "
        "the size of their mean), both in its round and in the last ones; likewise when an "
        "averaged coefficient grows by more than this times the median over clients",
        above=1,
        infinite=True,
    )
    max_move_factor: float = setting(
        5.0,
        "an update is invalid when it moves policy or critic by more than this times the median "
        "move of clients, both in its round and in the last ones",
        above=1,
        infinite=True,
    )
    max_magnitude: float = setting(
        1e6,
        "an update is invalid when a parameter, a mean or deviation of its data, or a metric is "
        "beyond this",
        above=0,
        high=1e9,
    )
    max_message_norm: float = setting(
        20.0,
        "an update is invalid when what its algorithm sends beside the model (scaffold's control "
        "variate) is longer than this times what the server shares (at least 1)",
        above=0,
    )
    suspend_after: int = setting(
        3,
        "a client whose answers were refused in so many rounds in a row, while others' were not, "
        "is not asked for a while; 0: everybody is always asked",
        low=0,
    )
    suspend_rounds: int = setting(10, "the rounds in which it is not asked then", low=1)
    clients_at_once: int = setting(
        0,
        "clients trained in one vmapped call; 0: one on a CPU (with a thread for each core), all "
        "K on an accelerator",
        low=0,
    )

    def stalled(self, empty_rounds: int) -> bool:
        """Return True if training gives up after so many rounds in a row without an update."""
        return empty_rounds >= min(self.max_empty_rounds, self.rounds)

    @property
    def selected(self) -> int:
        """The number of clients that are asked in a round."""
        return self.clients_per_round + self.extra

    @property
    def pools_data(self) -> bool:
        """True if a client that trains does so in the worlds of all."""
        return self.data == POOLED

    def sharing(self) -> Sharing:
        """Return who keeps which part of the model."""
        return Sharing(
            self.critic, self.observation_statistics, self.reward_statistics, self.personal
        )


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation of the global policy."""

    episodes: int = setting(20, "episodes for each client", low=1)
    every: int = setting(1, "evaluate after every so many rounds, and after the last", low=1)
    clients: int = setting(
        0,
        "evaluate on so many clients, the same in every round, drawn by the seed; 0: on all",
        low=0,
    )
    only: tuple[int, ...] = setting(
        (), "evaluate on these clients, and no others; empty: as `clients` says", low=0
    )
    averaging: bool = setting(
        False,
        "also evaluate the policy of each client that was averaged and the mixture of these "
        "policies, and measure how far they are from the average and from the policy before (in a "
        "simulation of worlds inside JAX only)",
    )


@dataclass(frozen=True)
class CheckpointSettings:
    """The rounds at which a run is saved."""

    every: int = setting(1, "save after every so many rounds, and after the last", low=1)
    keep_best: bool = setting(
        False,
        "keep the state after the round with the highest mean return, too, for `fedkl evaluate "
        "--best`; such a round is saved whatever `every` says",
    )
