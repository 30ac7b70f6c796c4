"""What follows from a config before the first round: the task, the first states, the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PyTree

from fedkl.clients.records import ClientState, Model, Start, Task, fresh
from fedkl.clients.round import message_after
from fedkl.engines import Engine, InProcess, InSharedWorld
from fedkl.io.arrays import to_arrays
from fedkl.learning.randomness import Purpose, key_for
from fedkl.learning.trajectories import samples_in
from fedkl.server.validation import Limits
from fedkl.worlds.base import SharedWorld, SoloWorld, World
from fedkl.worlds.distorted import distorted, without_table

if TYPE_CHECKING:
    from fedkl.config.config import Config


def task_of(config: Config) -> Task:
    """What is the same for every client and round.

    The world is the one that clients act in: with the wrapper around it that its table asks for.
    """
    world = config.world
    if isinstance(world, World):
        world = distorted(world)
    if isinstance(world, World | SoloWorld):
        world = without_table(world)
    return Task(world, config.algorithm, config.learner, config.critic)


def params_of(config: Config) -> PyTree:
    """What makes each client's world its own: the params of all of them, stacked.

    Raises:
        UserError: a client's words do not go together.
    """
    world = config.world
    assert isinstance(world, World | SoloWorld)
    drawn = distorted(world) if isinstance(world, World) else world
    return drawn.clients(config.federation.clients, key_for(config.seed_of_worlds, Purpose.WORLDS))


def clients_of(config: Config) -> dict[str, np.ndarray]:
    """What each client has of the words that they differ in, or that the config names."""
    world = config.world
    if isinstance(world, SharedWorld):
        return {}
    assert isinstance(world, World | SoloWorld)
    named = world.differences.drawn()
    words = {name.removeprefix("world."): x for name, x in to_arrays(params_of(config)).items()}
    # A dict's words come sorted; a world lists what belongs together side by side.
    order = [word.name for word in world.all_parameters if word.name in words]
    words = {word: words[word] for word in order} | words
    return {word: x for word, x in words.items() if word in named or (x != x[:1]).any()}


def first_states(config: Config) -> tuple[Model, ClientState]:
    """The model and every client's state before the first round."""
    key = key_for(config.seed, Purpose.MODEL)
    return fresh(task_of(config), config.federation.sharing(), key)


def trained_at_once(config: Config, on_cpu: bool) -> int:
    """How many clients are trained in one vmapped call."""
    settings, k = config.federation, config.federation.clients_per_round
    # Batched small matrix products gain nothing on a CPU, and its cores take a client each.
    return min(settings.clients_at_once or (1 if on_cpu else k), k)


def local_engine(config: Config) -> Engine:
    """An engine whose clients are all in this process.

    Raises:
        UserError: the world's simulator cannot run here.
    """
    task, world = task_of(config), config.world
    _, client = first_states(config)
    at_once = trained_at_once(config, on_cpu=jax.default_backend() == "cpu")
    if isinstance(world, SharedWorld):
        return InSharedWorld(task, client, at_once)
    return InProcess(task, client, params_of(config), at_once, config.federation.pools_data)


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
    steps = samples_in(world, learner)
    sample = (config.algorithm.observations_sent, world.observation_size)
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
        sends_observations=sample[0] > 0 and getattr(message, "shape", None) == sample,
    )
