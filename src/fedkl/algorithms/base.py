"""What an algorithm may add to local policy optimisation with a local KL penalty.

Each hook below adds nothing by default, so the base class is FedAvg, and an algorithm's file says
only what it changes. Those that a client calls run inside jitted code: they must be pure, and
number fields of an algorithm are traced (changing them compiles nothing again).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
from jaxtyping import Float, PRNGKeyArray, PyTree

from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.core.settings import setting
from fedkl.core.text import did_you_mean
from fedkl.io.arrays import Array
from fedkl.learning.distributions import DISTANCES
from fedkl.learning.minibatches import weighted_mean
from fedkl.learning.penalty import Coefficient
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import Iteration, Local, Measured
from fedkl.learning.settings import LearnerSettings, Sharing
from fedkl.learning.statistics import Moments

ALGORITHMS = Registry("algorithm")

P = TypeVar("P", bound=PyTree)
A = TypeVar("A", bound=type)


class Ended(NamedTuple):
    """A client's round, when its last iteration is over."""

    learner: LearnerSettings
    coefficients: dict[str, Float[Array, ""]]
    """c2 and those of the algorithm, as the last iteration left them."""
    own: Any
    shared: Any
    policy: Policy
    """What the client has come to."""
    global_policy: Policy
    """pi^t, which it started from."""
    move: Policy
    """How far it went from there, in what it sends back (None where the policy is personal)."""
    travelled: Float[Array, ""]
    """The sum of the step sizes of all gradient steps that count (those of iterations that the
    guard rolled back do not); 0 if the client went nowhere."""
    distance_global: Float[Array, ""]
    """From pi^t, after the last iteration that counts."""
    sample: Float[Array, "s o"] | None
    """Some of the last iteration's observations, if the algorithm asks for them."""
    statistics: Moments | None
    """What observations are standardised with now."""
    key: PRNGKeyArray
    """For the algorithm's own use."""


class Algorithm(eqx.Module):
    """Base of all algorithms: local policy optimisation, averaged by the server."""

    name: ClassVar[str]
    summary: ClassVar[str]

    distance: str = setting(
        "sqrt_kl",
        "distance between the global and a local policy (what distance_global reports)",
        choices=tuple(DISTANCES),
        static=True,
    )

    @property
    def needs_covariance(self) -> bool:
        """Whether the statistics of observations are to hold their covariance (`products`)."""
        return False

    @property
    def observations_sent(self) -> int:
        """How many of its last observations a client sends (`Ended.sample`, by `finish`)."""
        return 0

    @property
    def shares(self) -> bool:
        """Whether more than a model goes through the server."""
        return type(self).shared is not Algorithm.shared

    @property
    def bounds_messages(self) -> bool:
        """Whether messages are held to `federation.max_message_norm`."""
        return True

    def check(self, learner: LearnerSettings, sharing: Sharing) -> None:
        """Refuses a learner, or a way of sharing, that the algorithm cannot work with.

        Raises:
            UserError: names the setting and what is allowed.
        """

    # On a client, in the order of a round.

    def coefficients(self) -> dict[str, Coefficient]:
        """The penalty coefficients that each client adapts."""
        return {}

    def own(self, policy: Policy) -> PyTree:
        """What else a client keeps between its rounds, as it is before the first."""
        return ()

    def prepare(self, now: Iteration, key: PRNGKeyArray) -> PyTree:
        """What all gradient steps of an iteration look at, made once (`Local.prepared`)."""
        return ()

    def penalty(self, at: Local) -> Float[Array, ""] | float:
        """What is taken away from the local objective h_n, on a minibatch."""
        return 0.0

    def gradient(self, gradient: P, at: Local) -> P:
        """The gradient that is applied, given that of the objective on a minibatch."""
        return gradient

    def adapt(self, at: Local, measured: Measured) -> dict[str, Float[Array, ""]]:
        """The coefficients for the next iteration."""
        return at.coefficients

    def adapt_after_round(self, ended: Ended) -> dict[str, Float[Array, ""]]:
        """The coefficients after a round, for those that are adapted once in it.

        Not asked where the guard let a client go nowhere: it has measured nothing.
        """
        return ended.coefficients

    def finish(self, ended: Ended) -> tuple[PyTree, PyTree]:
        """What the client keeps after a round, and its message to the server beside its model."""
        return ended.own, ()

    def distance_to_global(self, at: Local) -> Float[Array, ""]:
        """The mean distance from the global policy over the states of a batch."""
        distances = DISTANCES[self.distance](at.global_actions, at.actions)
        return weighted_mean(distances, at.batch.weight)

    # On the server, in NumPy.

    def shared(self, policy: Policy) -> PyTree:
        """What is broadcast with the model, as it is before the first round."""
        return ()

    def gather(self, shared: PyTree, messages: Sequence[PyTree], clients: int) -> PyTree:
        """What is broadcast next.

        Args:
            shared: what was broadcast.
            messages: of the clients whose updates were accepted, by ascending number.
            clients: N, how many there are in the federation.
        """
        return shared


def register_algorithm(cls: A) -> A:
    """Adds an algorithm under its `name`.

    Raises:
        UserError: it has no name, or another's; or it has a method that nothing calls.
    """
    hooks = [name for name in vars(Algorithm) if not name.startswith("_") and _method(name)]
    for name, value in vars(cls).items():
        ours = name.startswith("_") or hasattr(Algorithm, name) or isinstance(value, property)
        if not ours and hasattr(value, "__get__"):
            raise UserError(
                f"nothing calls the method `{name}` of {cls.__qualname__}"
                f"{did_you_mean(name, hooks)}: an algorithm's hooks are {', '.join(hooks)}, and a "
                "helper's name begins with an underscore"
            )
    return ALGORITHMS.register(cls)


def _method(name: str) -> bool:
    return hasattr(vars(Algorithm)[name], "__get__")
