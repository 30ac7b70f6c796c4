"""The interface of an algorithm: what it adds to local policy optimisation with a local KL penalty.

Each hook below adds nothing by default, so the base class is FedAvg, and an algorithm's file says
only what it changes. Those that a client calls run inside jitted code: they must be pure, and
number fields of an algorithm are traced (changing them compiles nothing again).
"""

from __future__ import annotations

import warnings
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
from fedkl.learning.policy_optimisation import HookInput, Measured
from fedkl.learning.settings import LearnerSettings, Sharing
from fedkl.learning.statistics import Moments

ALGORITHMS = Registry("algorithm", "Algorithm")

P = TypeVar("P", bound=PyTree)
_FORMER = {"own": "client_state", "shared": "server_state"}
"""Hooks that had other names: those of algorithms written before are still called."""

A = TypeVar("A", bound=type)


class RoundResult(NamedTuple):
    """A client's round, when its last iteration is over."""

    learner: LearnerSettings
    coefficients: dict[str, Float[Array, ""]]
    """c2 and those of the algorithm, as the last iteration left them."""
    client_state: Any
    """The state that the client keeps for the algorithm."""
    server_state: Any
    """The state that the algorithm has the server broadcast."""
    policy: Policy
    """The client's policy now."""
    global_policy: Policy
    """pi^t, which it started from."""
    move: Policy
    """Its difference from there, in what it sends back (None where the policy is personal)."""
    step_size_sum: Float[Array, ""]
    """The sum of the step sizes of all gradient steps that count (those of iterations that the
    guard rolled back do not); 0 if the client went nowhere."""
    distance_global: Float[Array, ""]
    """From pi^t, after the last iteration that counts."""
    sample: Float[Array, "s o"] | None
    """Some of the last iteration's observations, if the algorithm asks for them."""
    statistics: Moments | None
    """The statistics that observations are standardised with now."""
    broadcast_statistics: Moments | None
    """The same as they were at the start of the round, without anything of it."""
    seen: Moments | None
    """Moments of this round's observations alone."""
    personal: Policy | None
    """The part of the policy that is the client's own, as the round began."""
    key: PRNGKeyArray
    """For the algorithm's own use."""

    @property
    def own(self) -> Any:
        """Former name of `client_state`."""
        return self.client_state

    @property
    def shared(self) -> Any:
        """Former name of `server_state`."""
        return self.server_state

    @property
    def travelled(self) -> Float[Array, ""]:
        """Former name of `step_size_sum`."""
        return self.step_size_sum


class Algorithm(eqx.Module):
    """Base of all algorithms: local policy optimisation, averaged by the server."""

    name: ClassVar[str]
    summary: ClassVar[str]

    distance: str = setting(
        "sqrt_kl",
        "distance between the global and a local policy (what distance_global reports)",
        choices=DISTANCES,
        static=True,
    )

    def __init_subclass__(cls, **options: Any) -> None:
        """Call hooks by their former names, too."""
        super().__init_subclass__(**options)
        for old, new in _FORMER.items():
            if old in vars(cls):
                warnings.warn(
                    f"the hook `{old}` of {cls.__qualname__} is called `{new}` now",
                    DeprecationWarning,
                    stacklevel=2,
                )
                setattr(cls, new, vars(cls)[old])

    @property
    def needs_covariance(self) -> bool:
        """True if the statistics of observations are to hold their covariance (`products`)."""
        return False

    @property
    def observations_sent(self) -> int:
        """The number of its last observations that a client sends (`RoundResult.sample`, by
        `finish`)."""
        return 0

    @property
    def shares(self) -> bool:
        """True if more than a model goes through the server."""
        return type(self).server_state is not Algorithm.server_state

    @property
    def bounds_messages(self) -> bool:
        """True if messages are held to `federation.max_message_norm`."""
        return True

    def check(self, learner: LearnerSettings, sharing: Sharing) -> None:
        """Refuse a learner, or a way of sharing, that the algorithm cannot work with.

        Raises:
            UserError: names the setting and what is allowed.
        """

    # On a client, in the order of a round.

    def coefficients(self) -> dict[str, Coefficient]:
        """The penalty coefficients that each client adapts."""
        return {}

    def client_state(self, policy: Policy) -> PyTree:
        """Make what else a client keeps between its rounds, as it is before the first."""
        return ()

    def prepare(self, now: HookInput, key: PRNGKeyArray) -> PyTree:
        """Make once what all gradient steps of an iteration look at (`HookInput.prepared`)."""
        return ()

    def penalty(self, at: HookInput) -> Float[Array, ""] | float:
        """Return the penalty on the local objective h_n, on a minibatch."""
        return 0.0

    def gradient(self, gradient: P, at: HookInput) -> P:
        """The gradient that is descended, on a minibatch.

        The policy goes against it: theta <- theta - step size * gradient. Without this hook it is
        that of -h_n, which the penalty is a part of. So a term that is to be kept small is added.

        Args:
            gradient: of -h_n, in the shape of a policy.
            at: where it was taken.
        """
        return gradient

    def adapt(self, at: HookInput, measured: Measured) -> dict[str, Float[Array, ""]]:
        """The coefficients for the next iteration."""
        return at.coefficients

    def adapt_after_round(self, result: RoundResult) -> dict[str, Float[Array, ""]]:
        """The coefficients after a round, for those that are adapted once in it.

        Not asked where the guard let a client go nowhere: it has measured nothing.
        """
        return result.coefficients

    def finish(self, result: RoundResult) -> tuple[PyTree, PyTree]:
        """Return what the client keeps after a round, and its message to the server beside its
        model."""
        return result.client_state, ()

    def distance_to_global(self, at: HookInput) -> Float[Array, ""]:
        """The mean distance from the global policy over the states of a batch."""
        distances = DISTANCES[self.distance](at.global_actions, at.actions)
        return weighted_mean(distances, at.batch.weight)

    # On the server, in NumPy.

    def server_state(self, policy: Policy) -> PyTree:
        """Make what is broadcast with the model, as it is before the first round."""
        return ()

    def gather(self, shared: PyTree, messages: Sequence[PyTree], clients: int) -> PyTree:
        """Return what is broadcast next.

        Args:
            shared: what was broadcast.
            messages: of the clients whose updates were accepted, by ascending number.
            clients: N, how many there are in the federation.
        """
        return shared


def register_algorithm(cls: A) -> A:
    """Add an algorithm under its `name`.

    Raises:
        UserError: it has no name, or another's; or it has a method that nothing calls.
    """
    hooks = [name for name in vars(Algorithm) if not name.startswith("_") and _method(name)]
    for name, value in vars(cls).items():
        ours = name.startswith("_") or hasattr(Algorithm, name) or isinstance(value, property)
        ours = ours or name in _FORMER
        if not ours and hasattr(value, "__get__"):
            raise UserError(
                f"nothing calls the method `{name}` of {cls.__qualname__}"
                f"{did_you_mean(name, hooks)}: an algorithm's hooks are {', '.join(hooks)}, and a "
                "helper's name begins with an underscore"
            )
    return ALGORITHMS.register(cls)


def _method(name: str) -> bool:
    return hasattr(vars(Algorithm)[name], "__get__")
