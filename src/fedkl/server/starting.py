"""What follows from a config before the first round: the task, the first states, the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from fedkl.clients.carry import Start
from fedkl.clients.ending import message_after
from fedkl.clients.state import ClientState, Model, Task, fresh
from fedkl.engines import Engine, InProcess, InSharedWorld
from fedkl.learning.trajectories import episodes_for
from fedkl.randomness import Purpose, key_for
from fedkl.server.validation import Limits
from fedkl.worlds.base import SharedWorld, SoloWorld, World

if TYPE_CHECKING:
    from fedkl.config import Config


def task_of(config: Config) -> Task:
    """What is the same for every client and round."""
    return Task(config.world, config.algorithm, config.learner, config.critic)


def first_states(config: Config) -> tuple[Model, ClientState]:
    """The model and every client's state before the first round."""
    key = key_for(config.seed, Purpose.MODEL)
    return fresh(task_of(config), config.federation.sharing(), key)


def local_engine(config: Config) -> Engine:
    """An engine whose clients are all in this process.

    Raises:
        UserError: the world's simulator cannot run here.
    """
    task, settings, world = task_of(config), config.federation, config.world
    _, client = first_states(config)
    k, on_cpu = settings.clients_per_round, jax.default_backend() == "cpu"
    # Batched small matrix products gain nothing on a CPU, and its cores take a client each.
    at_once = min(settings.clients_at_once or (1 if on_cpu else k), k)
    if isinstance(world, SharedWorld):
        return InSharedWorld(task, client, at_once)
    assert isinstance(world, World | SoloWorld)
    params = world.clients(settings.clients, key_for(config.seed, Purpose.WORLDS))
    return InProcess(task, client, params, at_once)


def limits_of(config: Config, model: Model, client: ClientState) -> Limits:
    """What an update may be at the most.

    Args:
        config: the run's.
        model: as it is before the first round.
        client: likewise.
    """
    settings, learner, world = config.federation, config.learner, config.world
    task = task_of(config)
    start = Start(model, client, key_for(config.seed, Purpose.TRAINING))
    message = jax.eval_shape(lambda s: message_after(task, s), start)
    steps = episodes_for(world, learner.steps) * world.horizon
    return Limits(
        max_weight=float(learner.iterations * steps),
        iterations=learner.iterations,
        max_relative_norm=settings.max_relative_norm,
        max_statistics_factor=settings.max_statistics_factor,
        max_message_norm=settings.max_message_norm if config.algorithm.bounds_messages else np.inf,
        coefficients={
            # One that starts out of bounds stays there while the guard rolls all iterations back.
            name: (min(c.first, c.bounds[0]), max(c.first, c.bounds[1]))
            for name, c in task.coefficients().items()
        },
        message=jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), message),
    )
