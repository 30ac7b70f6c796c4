"""What local training takes and gives: the broadcast model, a client's own state, its update."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, PyTree

from fedkl.learning.networks import MLP
from fedkl.learning.policy import Policy
from fedkl.learning.statistics import Moments


class Model(eqx.Module):
    """What the server owns and sends to the selected clients.

    A part that a config keeps on the clients is None here, and a part it shares is None in
    `ClientState`.
    """

    policy: Policy
    critic: MLP | None
    observations: Moments | None
    rewards: Moments | None
    coefficients: dict[str, PyTree]
    """The adaptive coefficients that the server averages (none unless configured)."""


class CriticState(NamedTuple):
    """A critic that stays on its client, with its optimiser's state."""

    critic: MLP
    optimiser: PyTree


class ClientState(eqx.Module):
    """What one client remembers between the rounds it takes part in."""

    coefficients: dict[str, PyTree]
    """c2 and whatever the algorithm adapts (c1 for FedKL)."""
    step_scale: Float[Array, ""]
    """Factor on the policy's step size; below 1 after the guard acted."""
    iterations: Int[Array, ""]
    """Local iterations this client has finished in its life."""
    critic: CriticState | None
    observations: Moments | None
    rewards: Moments | None


class Update(eqx.Module):
    """What a client sends back: its model, where the moments hold its new data only."""

    model: Model
    weight: Float[Array, ""]
    """l_k: the steps this client trained on in the round."""


Metrics = dict[str, Any]
