"""What an engine is: where the selected clients train, and where the global policy is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fedkl.federation.settings import FederationSettings
from fedkl.learning.rollout import Recording
from fedkl.learning.state import ClientState, Metrics, Model, Update

Outcome = tuple[Update, ClientState, Metrics]
Record = dict[str, Any]
"""What is logged of a round; docs/metrics.md says what each key means."""


def clients_at_once(settings: FederationSettings) -> int:
    """How many clients are trained in one vmapped call.

    On a CPU one: batched small matrix products gain nothing there, and the cores take a client
    each. On an accelerator all of them.
    """
    k = settings.clients_per_round
    on_cpu = jax.default_backend() == "cpu"
    return min(settings.clients_at_once or (1 if on_cpu else k), k)


class Engine(Protocol):
    """Where local rounds and evaluation run."""

    def train(
        self,
        model: Model,
        clients: Sequence[int],
        states: ClientState,
        keys: Sequence[PRNGKeyArray],
        shared_key: PRNGKeyArray,
    ) -> list[Outcome]:
        """One local round for each of `clients`.

        Args:
            model: the broadcast model.
            clients: which clients.
            states: of all clients, stacked.
            keys: a key for each of `clients`.
            shared_key: for what they share, if their world is one.

        Returns:
            Update, new state and metrics of each, as NumPy arrays, in the order of `clients`.
        """

    def evaluate(
        self,
        model: Model,
        states: ClientState,
        key: PRNGKeyArray,
        episodes: int,
        deterministic: bool,
    ) -> Float[np.ndarray, "n e"]:
        """Returns of the global policy in every client's world; changes nothing.

        Args:
            model: the broadcast model.
            states: of all clients, stacked.
            key: for everything random in it.
            episodes: for each client.
            deterministic: take the mode of the policy instead of a sample.
        """

    def record(
        self,
        model: Model,
        states: ClientState,
        key: PRNGKeyArray,
        client: int,
        deterministic: bool,
    ) -> Recording:
        """One episode of the global policy in a client's world, to look at; changes nothing."""

    def report(self) -> Record:
        """What the engine itself has to say of the work done so far, for the log."""
