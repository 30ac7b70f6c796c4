"""An algorithm whose clients and server keep and send things of types that only this file has."""

import os
import signal
from pathlib import Path
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

import fedkl
from fedkl.core.errors import UserError

ON_A_WORKER = Path(__file__).parents[1].name == "plugins"
"""A driver looks at hooks, too; on a worker this file is a copy in its cache folder."""


class Kept(NamedTuple):
    rounds: jnp.ndarray


class Said(NamedTuple):
    distance: jnp.ndarray


@fedkl.register_algorithm
class Counting(fedkl.Algorithm):
    """A penalty that depends on a client's own rounds, and on what all have said."""

    name: ClassVar[str] = "counting"
    summary: ClassVar[str] = "of tests"

    trouble: str = fedkl.setting(
        "none", "on a client", choices=("none", "mistake", "defect", "death"), static=True
    )

    def client_state(self, policy):
        return Kept(jnp.zeros(()))

    def server_state(self, policy):
        return Said(jnp.zeros(()))

    def penalty(self, at):
        match self.trouble if ON_A_WORKER else "none":
            case "mistake":
                raise UserError("somebody can mend it")
            case "defect":
                raise ZeroDivisionError("nobody can")
            case "death":
                os.kill(os.getpid(), signal.SIGKILL)
        return (
            0.1 + 0.01 * at.client_state.rounds + at.server_state.distance
        ) * self.distance_to_global(at)

    def finish(self, ended):
        return Kept(ended.client_state.rounds + 1), Said(ended.distance_global)

    def gather(self, shared, messages, clients):
        return Said(np.mean([m.distance for m in messages], dtype=np.float32))
