"""The video of `fedkl evaluate --video`: the clients in it, their episodes, the file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkl.core.errors import UserError
from fedkl.core.text import digits
from fedkl.drawing import Scene, check_target, grid, write_video
from fedkl.server.loop import Federation
from fedkl.server.recording import Episode
from fedkl.worlds import SharedWorld

_WIDTHS = {".mp4": 960, ".gif": 600}
"""Of a picture with several clients, in pixels."""


def chosen(options: argparse.Namespace, federation: Federation) -> list[int]:
    """Choose the clients whose worlds are filmed; none without --video.

    Raises:
        UserError: there are no such clients, or they share one world.
    """
    clients = federation.config.federation.clients
    for name, given in (("--client", options.client), ("--clients", options.clients)):
        if given is not None and options.video is None:
            raise UserError(f"{name} says whose world is filmed, and needs --video")
    if options.client is not None and options.clients is not None:
        raise UserError("--client films one client and --clients several: give one of them")
    if options.client is not None and not 0 <= options.client < clients:
        raise UserError(f"--client must be from 0 to {clients - 1}, not {options.client}")
    if options.clients is not None and not 1 <= options.clients <= clients:
        raise UserError(f"--clients must be from 1 to {clients}, not {options.clients}")
    if options.clients is not None and isinstance(federation.config.world, SharedWorld):
        raise UserError("--clients is for clients with worlds of their own; these share one")
    if options.video is None:
        return []
    if options.clients is None:
        return [options.client or 0]
    # Spread over all of them, because neighbours are often alike.
    return [int(n) for n in np.linspace(0, clients - 1, options.clients).round()]


def episodes(
    options: argparse.Namespace, federation: Federation, clients: list[int]
) -> dict[int, Episode]:
    """Record an episode of each client, before anything that costs more time."""
    if clients:
        check_target(options.video)
    return {client: federation.film(client, options.deterministic) for client in clients}


def write(
    options: argparse.Namespace, federation: Federation, found: Mapping[int, Episode]
) -> dict[str, Any]:
    """Write the video, and return what is reported of it.

    Raises:
        UserError: it cannot be written.
    """
    world = federation.config.world
    shared = isinstance(world, SharedWorld)
    scenes = [
        Scene(
            episode.frames,
            [
                f"{'all clients' if shared else f'client {client}'}, return {digits(total)}"
                for total in episode.totals
            ],
        )
        for client, episode in found.items()
    ]
    speed = f", {world.playback:g}x" if world.playback else ""
    heading = f"{federation.config.algorithm.name} on {world.title}, "
    heading += f"round {int(federation.state.round)}{speed}"
    frames = grid(scenes, heading, world.legend, _WIDTHS[options.video.suffix.lower()])
    write_video(options.video, frames, next(iter(found.values())).frames_per_second)
    returns = {client: episode.episode_return for client, episode in found.items()}
    said: dict[str, Any] = {"file": str(options.video)}
    if options.clients is None:
        ((client, episode_return),) = returns.items()
        return said | {"client": client, "return": episode_return}
    return said | {"clients": list(returns), "returns": list(returns.values())}


def in_words(video: Mapping[str, Any]) -> str:
    """Describe the video in a line."""
    if "client" in video:
        came_to = digits(video["return"], 3)
        return f"video: {video['file']} (client {video['client']}, return {came_to})"
    pairs = zip(video["clients"], video["returns"], strict=True)
    said = ", ".join(f"client {client} {digits(value, 3)}" for client, value in pairs)
    return f"video: {video['file']} (returns: {said})"
