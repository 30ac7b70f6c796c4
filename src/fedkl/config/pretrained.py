"""The parts that a run takes from another one, where it does not start from a new policy.

Taken are the policy, the critic, and the statistics of observations and rewards: what it takes to
act and to go on learning. Whatever belongs to an algorithm or to the way in which clients are
brought together begins anew: coefficients, step sizes, control variates, optimisers, what the
server's chain and its selection remember, and the count of rounds and steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from fedkl.clients.records import ClientState, Model, Task, first_states
from fedkl.core.errors import UserError
from fedkl.io.arrays import from_arrays, mismatch, to_arrays
from fedkl.learning.policy import whole
from fedkl.learning.settings import FEDERATED, NONE, Sharing
from fedkl.learning.statistics import Moments, pairs

TAKEN = ("policy", "critic", "observations", "rewards")
"""The parts of a server's model that a run takes, as far as they are there."""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """The parts of another run's model that a run starts from."""

    arrays: Mapping[str, np.ndarray]
    """By name, such as policy.log_std."""
    source: str
    """The round and the run that they come from, for people."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """The config and versions that these were made with (`training.origin`)."""

    @cached_property
    def sha256(self) -> str:
        """The checksum of the arrays, which a config has as `start_from`."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def first_states(
        self, task: Task, sharing: Sharing, key: PRNGKeyArray, title: str
    ) -> tuple[Model, ClientState]:
        """The model and every client's state before the first round, as `clients.records` has them.

        The server's statistics are in float64 here, bit for bit those that were taken.

        Args:
            task, sharing, key: of the run.
            title: its name, for messages.

        Raises:
            UserError: a part does not fit; the sentence names both and what differs.
        """
        model, client = first_states(task, sharing, key)
        policy = self._network("policy", whole(model.policy, client.personal), title)
        critic = model.critic if client.critic is None else client.critic.critic
        if critic is not None and self._of("critic"):
            critic = self._network("critic", critic, title)
        seen = self._moments("observations")
        if (seen is None) != (sharing.observations == NONE):
            how, wanted = ("standardised", FEDERATED) if seen else ("not standardised", NONE)
            raise UserError(
                f"{self.source} does not fit {title}: its policy sees observations that are {how}, "
                f"so federation.observation_statistics must be {wanted}, not {sharing.observations}"
            )
        # What an algorithm keeps may depend on the policy, so it is made of the one that is taken.
        model, client = first_states(task, sharing, key, (policy, critic))
        for name, taken in (("observations", seen), ("rewards", self._moments("rewards"))):
            if taken is not None:
                model, client = (_with_moments(state, name, taken) for state in (model, client))
        return model, client

    def _of(self, part: str) -> dict[str, np.ndarray]:
        prefix = f"{part}."
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }

    def _network(self, part: str, template: Any, title: str) -> Any:
        have, want = self._of(part), to_arrays(template)
        if (problem := mismatch(want, have)) is None:
            return from_arrays(template, have)
        ours, theirs = _layers(have), _layers(want)
        if ours != theirs:
            problem = f"its {part} has {ours}, and that of {title} has {theirs}"
        else:
            problem = f"its {part} is another: {problem}"
        raise UserError(f"{self.source} does not fit {title}: {problem}")

    def _moments(self, name: str) -> Moments | None:
        if not (found := self._of(name)):
            return None
        return Moments(found["count"], found["mean"], found["squares"], found.get("products"))


def _with_moments(state: Any, name: str, taken: Moments) -> Any:
    """A model or a client's state that has the statistics, if it is to have any."""
    if (blank := getattr(state, name)) is None:
        return state
    products = None
    if blank.products is not None:
        # Of a run that kept none, features are taken for independent (`statistics.correlation`).
        number = len(pairs(taken.mean.shape[0])[0])
        products = np.zeros(number) if taken.products is None else taken.products
    exact = Moments(taken.count, taken.mean, taken.squares, products)
    # The server keeps float64, clients float32.
    kind = np.float64 if isinstance(state, Model) else np.float32
    own = jax.tree.map(lambda x: np.asarray(x, kind), exact)
    return eqx.tree_at(lambda s: getattr(s, name), state, own, is_leaf=lambda x: x is None)


def _layers(arrays: Mapping[str, np.ndarray]) -> str:
    """The widths of a network's layers, from its input to its output, and its kind of actions."""
    weights = {n: a for n, a in arrays.items() if n.split(".")[-2:-1] == ["weights"]}
    shapes = [weights[n].shape for n in sorted(weights, key=lambda n: int(n.split(".")[-1]))]
    widths = "-".join(str(n) for n in [*(s[0] for s in shapes), *(s[-1] for s in shapes[-1:])])
    if not any(name.startswith("network.") for name in arrays):
        return f"layers {widths}"
    return f"layers {widths} and {'continuous' if 'log_std' in arrays else 'discrete'} actions"
