"""The engine and the limits of a server, made from a config before the first round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from fedkl.clients.records import Start
from fedkl.clients.round import message_after
from fedkl.engines import Engine, InProcess, InSharedWorld
from fedkl.learning.randomness import Purpose, key_for
from fedkl.learning.trajectories import samples_in
from fedkl.server.validation import Limits

if TYPE_CHECKING:
    from fedkl.config.config import Config


def trained_at_once(config: Config, on_cpu: bool) -> int:
    """The number of clients that are trained in one vmapped call."""
    settings, k = config.federation, config.federation.clients_per_round
    # Batched small matrix products gain nothing on a CPU, and its cores take a client each.
    return min(settings.clients_at_once or (1 if on_cpu else k), k)


def local_engine(config: Config) -> Engine:
    """An engine whose clients are all in this process.

    Raises:
        UserError: the world's simulator cannot run here.
    """
    task, (_, client) = config.task, config.first_states
    at_once = trained_at_once(config, on_cpu=jax.default_backend() == "cpu")
    if config.world.is_shared:
        return InSharedWorld(task, client, at_once)
    return InProcess(task, client, config.client_params, at_once, config.federation.pools_data)


def limits_of(config: Config) -> Limits:
    """The most that an update may be."""
    settings, learner, task = config.federation, config.learner, config.task
    start = Start(*config.first_states, key_for(config.seed, Purpose.TRAINING))
    message = jax.eval_shape(lambda s: message_after(task, s), start)
    steps = samples_in(config.world, learner)
    sample = (config.algorithm.observations_sent, config.world.observation_size)
    return Limits(
        max_weight=float(learner.iterations * steps),
        iterations=learner.iterations,
        max_relative_norm=settings.max_relative_norm,
        max_statistics_factor=settings.max_statistics_factor,
        max_move_factor=settings.max_move_factor,
        max_magnitude=settings.max_magnitude,
        max_message_norm=settings.max_message_norm if config.algorithm.bounds_messages else np.inf,
        coefficients={
            # One that starts out of bounds stays there while the guard rolls all iterations back.
            name: (min(c.first, c.bounds[0]), max(c.first, c.bounds[1]))
            for name, c in task.coefficients().items()
        },
        growth={name: c.growth for name, c in task.coefficients().items()},
        message=jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), message),
        logged=learner.all_logged(),
        sends_observations=sample[0] > 0 and getattr(message, "shape", None) == sample,
    )
