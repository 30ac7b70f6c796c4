"""The settings of local training: everything Algorithm 2 does on one client."""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx

from fedkl.core.settings import setting
from fedkl.learning.penalty import ACROSS_ROUNDS, Coefficient, check_bounds
from fedkl.simulators.actors import ACTIVATIONS


class RoundSettings(eqx.Module):
    """Settings of every learner: the length of a round, the policy's network, discounting."""

    iterations: int = setting(20, "I: local iterations in a round", low=1, static=True)
    steps: int = setting(2048, "T: steps an iteration collects", low=1, static=True)
    collect: str = setting(
        "steps",
        "steps: exactly T, with a new episode after every end, and the last ones cut; episodes: "
        "whole episodes, as many as fill T at full length",
        choices=("steps", "episodes"),
        static=True,
    )
    hidden: tuple[int, ...] = setting(
        (64, 64), "widths of the policy's hidden layers", low=1, static=True
    )
    activation: str = setting(
        "tanh", "what follows each of the policy's hidden layers", choices=ACTIVATIONS, static=True
    )
    initial_log_std: float = setting(0.0, "log standard deviation of a new Gaussian policy")
    output_scale: float = setting(
        0.01, "factor on the initial weights of the policy's last layer", low=0
    )
    discount: float = setting(0.99, "gamma", low=0, high=1)
    gae_lambda: float = setting(0.95, "lambda of generalised advantage estimation", low=0, high=1)
    bootstrap_truncation: bool = setting(
        True, "take the critic's value after a time-limit end (false: take 0)", static=True
    )
    observation_clip: float = setting(
        5.0, "standardised observations are clipped to plus or minus this", above=0
    )
    uniform_exploration: float = setting(
        0.0,
        "probability of an action uniform in [0, 1] until a client finished its first iteration",
        low=0,
        high=1,
        static=True,
    )
    personal_iterations: int = setting(
        0,
        "iterations at the start of a round in which only the personal part of the policy is "
        "trained (federation.personal)",
        low=0,
        static=True,
    )


class LearnerSettings(RoundSettings):
    """One client's policy optimisation (the paper's eq. 24 and its three phases)."""

    epochs: int = setting(10, "E: passes over an iteration's data", low=1, static=True)
    minibatch: int = setting(64, "samples in a gradient step", low=1, static=True)
    learning_rate: float = setting(1e-3, "step size of the policy", above=0)
    optimiser: str = setting("sgd", "the policy's optimiser", choices=("sgd", "adam"), static=True)
    max_gradient_norm: float = setting(
        math.inf,
        "longer policy gradients are shortened to this norm; inf: never",
        above=0,
        infinite=True,
        static=True,
    )
    entropy_bonus: float = setting(
        0.0,
        "weight of the policy's mean entropy (in nats) in the objective, for more exploration; 0: "
        "it is not computed",
        low=0,
        static=True,
    )
    standardise_advantages: bool = setting(
        True, "give each batch's advantages mean 0 and deviation 1", static=True
    )
    discounted_states: bool = setting(
        False,
        "weigh a state by discount^t in the policy's objective and divergences, t steps into its "
        "episode, as the paper's discounted visitation does (false: all states alike)",
        static=True,
    )
    statistics_from: str = setting(
        "iteration",
        "observations are standardised by the statistics as they stood before the iteration, or "
        "before the round: then pi^t is one function for the whole round, and in the first round "
        "nothing is standardised",
        choices=("iteration", "round"),
        static=True,
    )
    ratio_bounds: tuple[float, float] = setting(
        (0.0, math.inf), "the importance ratio is clipped to this range", infinite=True, low=0
    )
    reward_clip: float = setting(10.0, "scaled rewards are clipped to plus or minus this", above=0)
    d_local: float = setting(0.01, "target KL(pi_{i-1} || pi_i) of an iteration", above=0)
    c2: float = setting(1.0, "first coefficient of the local KL penalty", above=0)
    c2_bounds: tuple[float, float] = setting((1e-3, 20.0), "range of c2", above=0)
    c2_cap_by_advantage: bool = setting(
        False, "also keep c2 below max advantage / measured KL", static=True
    )
    c2_across_rounds: str = setting("kept", "c2 between rounds", choices=ACROSS_ROUNDS, static=True)
    guard: bool = setting(
        True, "roll back an iteration that leaves the trust region, and halve the step", static=True
    )
    guard_multiple: float = setting(
        3.0, "the trust region ends at this multiple of d_local", above=1
    )
    outliers_beyond: float = setting(
        8.0,
        "an observation this many times as large as the largest usual one of its iteration is a "
        "broken reading: it is counted, and does not enter the running statistics; usual is what "
        "four fifths of the iteration's readings are, and whatever no such gap divides from them "
        "(sizes below 1 count as 1)",
        above=1,
        infinite=True,
        static=True,
    )
    reward_outliers_beyond: float = setting(
        400.0,
        "likewise of rewards, of which honest ones may be seldom and large; a broken one is not "
        "learnt from, either: it counts as the mean of the others",
        above=1,
        infinite=True,
        static=True,
    )

    def __check_init__(self) -> None:
        check_bounds("learner.c2_bounds", self.c2_bounds)
        check_bounds("learner.ratio_bounds", self.ratio_bounds)

    def coefficients(self) -> dict[str, Coefficient]:
        """c2, the coefficient of the local penalty."""
        return {"c2": Coefficient(self.c2, self.c2_bounds, self.c2_across_rounds)}


class CriticSettings(eqx.Module):
    """The state-value network and its own optimiser (Adam)."""

    hidden: tuple[int, ...] = setting(
        (64, 64), "widths of the critic's hidden layers", low=1, static=True
    )
    activation: str = setting(
        "tanh", "what follows each of the critic's hidden layers", choices=ACTIVATIONS, static=True
    )
    learning_rate: float = setting(1e-3, "Adam's step size", above=0)
    epochs: int = setting(10, "passes over an iteration's data", low=1, static=True)
    minibatch: int = setting(64, "samples in a gradient step", low=1, static=True)
    l2: float = setting(0.0, "weight of the squared weights in the loss", low=0)
    targets: str = setting(
        "gae",
        "regression targets: advantage plus value, or discounted returns",
        choices=("gae", "returns"),
        static=True,
    )
    sees_time: bool = setting(
        False,
        "tell the critic how much time is left: where a time limit ends an episode for good "
        "(learner.bootstrap_truncation = false), the value of a state depends on it",
        static=True,
    )
    replay_previous: bool = setting(
        False, "train on the previous iteration's batch as well", static=True
    )


FEDERATED, LOCAL, NONE, ALL = "federated", "local", "none", "all"

PERSONAL = (NONE, "action-bias", "last-layer", ALL)
"""Which part of the policy may stay on its client: nothing; what is added to every action (or to
the logits of discrete ones); the last layer; or all of it, so that each client learns alone."""


class Sharing(NamedTuple):
    """The holder of each part that a config may place: the server (federated), each client (local),
    or nobody (none). The rest of the policy and what an algorithm shares are always the server's; a
    coefficient follows its rule: kept on the client, averaged by the server, or reset."""

    critic: str = FEDERATED
    observations: str = FEDERATED
    rewards: str = FEDERATED
    personal: str = NONE
    """The part of the policy that each client keeps, one of `PERSONAL`."""
