"""Runs with policies that nobody trained, which are as good as others to be loaded."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import fedkl
from fedkl.clients.round import global_behaviour
from fedkl.io.arrays import to_arrays
from fedkl.server.loop import Federation
from fedkl.server.state import broadcast
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory

SMALL = {
    "federation.clients": 4,
    "federation.clients_per_round": 2,
    "learner.hidden": [7, 5],
    "learner.observation_clip": 2.0,
}


class Scrambled(NamedTuple):
    """A run, and the federation whose state was saved there."""

    run: RunDirectory
    federation: Federation

    def jax_action(self, observation: Any, client: int = 0) -> np.ndarray:
        """What the client does, as its evaluation has it: the mode."""
        model = broadcast(self.federation.state.model)
        own = self.federation.engine.save().get(client, self.federation._first_client)
        behaviour = global_behaviour(self.federation.config.task, model, own, True)
        seen = np.atleast_2d(np.asarray(observation, np.float32))
        return np.asarray(behaviour(seen, jax.random.key(0)))


def scrambled(arrays: dict[str, np.ndarray], random: np.random.Generator) -> dict[str, np.ndarray]:
    """The same arrays with other numbers: networks and statistics that tell entries apart."""
    result = {}
    for name, array in arrays.items():
        other = array
        if np.issubdtype(array.dtype, np.floating):
            other = random.normal(size=array.shape).astype(array.dtype)
            if name.endswith("squares"):
                other = 30 * np.abs(other)
            if name.endswith("count"):
                other = np.asarray(20.0, array.dtype)
        result[name] = other
    return result


@pytest.fixture
def scramble(tmp_path) -> Callable[..., Scrambled]:
    """Makes a run of a preset, at round 3, with numbers drawn by a seed."""

    def make(
        preset: str = "cartpole", seed: int = 0, clients: tuple[int, ...] = (1, 2), **settings: Any
    ) -> Scrambled:
        dotted = {key.replace("__", "."): value for key, value in settings.items()}
        config = fedkl.preset(preset, "fedkl", 0, SMALL | dotted)
        run = lifecycle.create(config, tmp_path / f"run-{seed}")
        federation = Federation(config)
        random = np.random.default_rng(seed)
        arrays = scrambled(federation.save().arrays, random)
        arrays["round"] = np.asarray(3, np.int64)
        own = {f"own.{n}": a for n, a in to_arrays(federation._first_client).items()}
        rows = {c: {"since": np.asarray(2), **scrambled(own, random)} for c in clients}
        federation.restore(arrays, rows)
        run.checkpoints.save(3, *federation.save())
        return Scrambled(run, federation)

    return make
