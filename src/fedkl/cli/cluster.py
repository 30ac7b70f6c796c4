"""The Ray that the options of a command ask for, if any."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fedkl.core.errors import UserError

# A command without Ray need not wait for it, nor have it: it is imported where it is asked for.
if TYPE_CHECKING:
    from fedkl.config.config import Config
    from fedkl.engines import Engine
    from fedkl.experiments.workers import Place
    from fedkl.network.ray.connection import RaySettings

    EngineFor = Callable[[Config], Engine]


@contextlib.contextmanager
def place(options: argparse.Namespace) -> Iterator[Place | None]:
    """Choose where runs are trained side by side; None: in processes on this machine.

    Raises:
        UserError: the options do not go together, or there is no such Ray.
    """
    where = _where(options)
    if where is None:
        yield None
        return
    from fedkl.experiments.ray_runs import OnRay
    from fedkl.network.ray.connection import connected

    with connected(where) as cluster:
        yield OnRay(cluster)


@contextlib.contextmanager
def engine(options: argparse.Namespace) -> Iterator[EngineFor]:
    """Choose what makes the engine of a config: in this process, or on Ray.

    Raises:
        UserError: the options do not go together, or there is no such Ray.
    """
    if options.engine == "in-process":
        refuse(options)
    if options.engine == "ray" and options.ray is None:
        options.ray = ""
    where = _where(options, options.actors)
    if where is None:
        from fedkl.server.setup import local_engine

        yield local_engine
        return
    from fedkl.network.ray.connection import connected
    from fedkl.network.ray.engine import Ray

    with connected(where) as cluster:
        yield lambda config: Ray(config, options.actors or cluster.cpus)


def refuse(options: argparse.Namespace) -> None:
    """Refuse the options of Ray, for what has nothing to do with it.

    Raises:
        UserError: the options ask for it.
    """
    for name, given in (
        ("--ray", options.ray is not None),
        ("--insecure-ray", options.insecure_ray),
        ("--actors", options.actors is not None),
    ):
        if given:
            raise UserError(f"{name} is for clients on a Ray cluster, and these are elsewhere")


def _where(options: argparse.Namespace, actors: int | None = None) -> RaySettings | None:
    """Read from the options which Ray they ask for, if any."""
    if options.insecure_ray and not options.ray:
        raise UserError("--insecure-ray is for a cluster, whose address --ray gives")
    if actors is not None and options.ray is None:
        raise UserError("--actors is for the engine ray: say --engine ray, or --ray")
    if actors is not None and actors < 1:
        raise UserError(f"--actors must be at least 1, not {actors}")
    if options.ray is None:
        return None
    from fedkl.network.ray.connection import RaySettings

    return RaySettings(options.ray or None, options.insecure_ray, actors)
