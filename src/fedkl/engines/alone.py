"""One client's work by itself: in a simulation and on a client of a network the very same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree, UInt32

from fedkl.clients.carry import Start
from fedkl.clients.sources import Hosted, PooledHosted, PooledTraced, Source, Traced
from fedkl.clients.state import ClientState, Model, Task
from fedkl.clients.work import Work
from fedkl.engines.base import Failure, Words
from fedkl.simulators.base import EpisodeLostError
from fedkl.simulators.pool import Workers
from fedkl.worlds.base import SoloWorld, World

R = TypeVar("R")


class Asked(NamedTuple):
    """What one client goes on from."""

    model: Model
    """What was broadcast."""
    own: ClientState
    key: Words


def simulators_of(task: Task) -> Workers | None:
    """The processes that simulate the task's world, if it is one on the host.

    Raises:
        UserError: its simulator cannot run here.
    """
    if not isinstance(task.world, SoloWorld):
        return None
    return Workers(task.world.simulator(), task.world.patience)


def work_alone(
    work: Work[R],
    task: Task,
    asked: Asked,
    params: PyTree,
    workers: Workers | None,
    pooled: bool = False,
) -> tuple[R | Failure, ClientState | None]:
    """A client's answer, and its state afterwards (None: as it was), as NumPy arrays.

    Args:
        work: what is asked.
        task: world, algorithm and settings of local training.
        asked: what the client goes on from.
        params: its row of the world's params.
        workers: as `simulators_of` gives them.
        pooled: whether it works in the worlds of all clients; `params` are those of all then.
    """
    if workers is None:
        return jax.device_get(_do_one(work, task, *asked[:2], params, asked.key, pooled=pooled))
    world = task.world
    assert isinstance(world, SoloWorld)
    kind = PooledHosted if pooled else Hosted
    source = kind(workers, params, world.horizon, world.truncates)
    start = Start(asked.model, asked.own, jax.random.wrap_key_data(jnp.asarray(asked.key)))
    try:
        return jax.device_get(work(task, start, source))
    except EpisodeLostError as error:  # this client's simulator is its own
        return Failure(str(error)), None


def do(
    work: Work[Any],
    task: Task,
    model: Model,
    own: ClientState,
    params: PyTree,
    key: UInt32[Any, " w"],
    pooled: bool = False,
) -> tuple[Any, ClientState | None]:
    """The work of a client whose world is traced, to be compiled."""
    assert isinstance(task.world, World)
    source: Source = (PooledTraced if pooled else Traced)(task.world, params)
    return work(task, Start(model, own, jax.random.wrap_key_data(key)), source)


_do_one: Callable[..., Any] = jax.jit(do, static_argnames="pooled")
