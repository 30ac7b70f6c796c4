"""A batch so small that every term of h_n can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from fedkl.algorithms import Algorithm, RoundResult
from fedkl.learning.policy import Policy
from fedkl.learning.policy_optimisation import (
    HookInput,
    PolicyBatch,
    at_step,
    objective,
)
from fedkl.learning.settings import LearnerSettings
from fedkl.worlds import PointTarget


class Hand(NamedTuple):
    """pi = N(1, 1), pi_{i-1} = N(0, 1), pi^t = N(-1, 2^2) (standard deviation 2) in all states.

    Two real samples: action 0 of advantage 1, action 1 of advantage -2; and one of padding.
    The importance ratio is exp(a - 1/2), KL(pi_{i-1} || pi) is 1/2, and KL(pi^t || pi) is
    -log 2 + (2^2 + 2^2)/2 - 1/2. The parameters of pi^t are 3/2, 1/2 and log 2 away from pi's.
    """

    policy: Policy
    previous: Policy
    broadcast: Policy
    batch: PolicyBatch
    gain: float = (math.exp(-0.5) - 2 * math.exp(0.5)) / 2
    kl_local: float = 0.5
    kl_global: float = 3.5 - math.log(2)
    gap: float = 1.5**2 + 0.5**2 + math.log(2) ** 2

    def now(self, **coefficients: float) -> HookInput:
        """The first iteration of a round."""
        return HookInput(
            learner=LearnerSettings(),
            coefficients={name: jnp.asarray(value) for name, value in coefficients.items()},
            client_state=(),
            server_state=(),
            prepared=(),
            policy=self.previous,
            actions=self.previous.distribution(self.batch.previous),
            previous_policy=self.previous,
            global_policy=self.broadcast,
            global_actions=self.broadcast.distribution(self.batch.broadcast),
            personal=None,
            batch=self.batch,
            statistics=None,
            broadcast_statistics=None,
            seen=None,
            iteration=jnp.array(0),
            step=jnp.array(0),
            key=jax.random.key(0),
        )

    def at(self, step: int = 0, **coefficients: float) -> HookInput:
        """What hooks see of pi."""
        return at_step(self.now(**coefficients), self.policy, self.batch, step)

    def objective(self, algorithm: Algorithm, **coefficients: float) -> float:
        """h_n of the batch."""
        return float(objective(algorithm, self.at(**coefficients)))

    def ended(self, **more: Any) -> RoundResult:
        """A round that began at pi^t and has come to pi, but for what is said."""
        policies = {"policy": self.policy, "global_policy": self.broadcast} | more
        usual: dict[str, Any] = {
            "learner": LearnerSettings(),
            "coefficients": {},
            "client_state": (),
            "server_state": (),
            "move": jax.tree.map(jnp.subtract, policies["policy"], policies["global_policy"]),
            "step_size_sum": jnp.array(0.1),
            "distance_global": jnp.array(0.0),
            "sample": None,
            "statistics": None,
            "broadcast_statistics": None,
            "seen": None,
            "personal": None,
            "key": jax.random.key(0),
        }
        return RoundResult(**usual | policies)


@pytest.fixture(autouse=True, scope="module")
def _always_quick(quick_compilation: None) -> None:
    """All tests here compile small functions."""


@pytest.fixture(scope="session")
def normal() -> Callable[..., Policy]:
    """Makes a policy with one weight, one bias and one log standard deviation."""
    blank = Policy(PointTarget(), LearnerSettings(hidden=()), jax.random.key(0))

    def make(weight: float, bias: float, std: float) -> Policy:
        return eqx.tree_at(
            lambda p: (p.network.weights, p.network.biases, p.log_std),
            blank,
            ((jnp.array([[weight]]),), (jnp.array([bias]),), jnp.log(jnp.array([std]))),
        )

    return make


@pytest.fixture(scope="session")
def hand(normal: Callable[..., Policy]) -> Hand:
    """The batch; the observation is always 1."""
    now, previous, broadcast = normal(0.5, 0.5, 1.0), normal(0.0, 0.0, 1.0), normal(-1.0, 0.0, 2.0)
    states, actions = jnp.ones((3, 1)), jnp.array([[0.0], [1.0], [5.0]])
    batch = PolicyBatch(
        observation=states,
        action=actions,
        advantage=jnp.array([1.0, -2.0, 1000.0]),
        log_prob=previous(states).log_prob(actions),
        previous=previous.network(states),
        broadcast=broadcast.network(states),
        weight=jnp.array([1.0, 1.0, 0.0]),
    )
    return Hand(now, previous, broadcast, batch)
