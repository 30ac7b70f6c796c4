"""The evaluation of a policy on all clients, and its video: the clients in it, their episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedkl.clients.work import Evaluate
from fedkl.core.errors import UserError
from fedkl.core.text import digits
from fedkl.drawing import Scene, check_target, grid, write_video
from fedkl.server.loop import Federation
from fedkl.server.recording import Episode

_WIDTHS = {".mp4": 960, ".gif": 600}
"""Of a picture with several clients, in pixels."""


class Wanted(NamedTuple):
    """The video that is asked for, by the options of `fedkl evaluate`."""

    video: Path | None = None
    """Its file; None: there is to be none."""
    client: int | None = None
    clients: int | None = None
    deterministic: bool = False


def evaluate(
    federation: Federation, run: Path, episodes: int, wanted: Wanted, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Evaluate the global policy on all clients, and film it if that is asked for.

    Args:
        federation: as of the round that is evaluated.
        run: its directory.
        episodes: for each client.
        wanted: the video.
        warn: is notified of clients that gave no return.

    Returns:
        What `fedkl evaluate --json` prints; the return of a client that gave none is NaN.

    Raises:
        UserError: there is nothing to evaluate, no client gives a return, or there is no such film.
    """
    if federation.state.round == 0:
        raise UserError(f"{run} has no finished round to evaluate yet")
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}")
    clients = federation.config.federation.clients
    filmed = record(wanted, federation, chosen(wanted, federation))
    returns, failures = federation.evaluation(Evaluate(episodes, wanted.deterministic))()
    per_client = returns.mean(axis=1)
    if failures:
        reasons = "; ".join(f"client {client}: {why}" for client, why in [*failures.items()][:5])
        if len(failures) == clients:
            raise UserError(f"no client has given a return ({reasons})")
        warn(f"{len(failures)} of {clients} clients gave no return, and do not count ({reasons})")
    result: dict[str, Any] = {
        "round": int(federation.state.round),
        "episodes": episodes,
        "deterministic": wanted.deterministic,
        "return_mean": float(np.nanmean(per_client)),
        "return_min": float(np.nanmin(per_client)),
        "return_std": float(np.nanstd(per_client)),
        "return_per_client": [float(r) for r in per_client],
    }
    if filmed:
        result["video"] = write(wanted, federation, filmed)
    return result


def chosen(wanted: Wanted, federation: Federation) -> list[int]:
    """Choose the clients whose worlds are filmed; none without --video.

    Raises:
        UserError: there are no such clients, or they share one world.
    """
    clients = federation.config.federation.clients
    for name, given in (("--client", wanted.client), ("--clients", wanted.clients)):
        if given is not None and wanted.video is None:
            raise UserError(f"{name} says whose world is filmed, and needs --video")
    if wanted.client is not None and wanted.clients is not None:
        raise UserError("--client films one client and --clients several: give one of them")
    if wanted.client is not None and not 0 <= wanted.client < clients:
        raise UserError(f"--client must be from 0 to {clients - 1}, not {wanted.client}")
    if wanted.clients is not None and not 1 <= wanted.clients <= clients:
        raise UserError(f"--clients must be from 1 to {clients}, not {wanted.clients}")
    if wanted.clients is not None and federation.config.world.is_shared:
        raise UserError("--clients is for clients with worlds of their own; these share one")
    if wanted.video is None:
        return []
    if wanted.clients is None:
        return [wanted.client or 0]
    # Spread over all of them, because neighbours are often alike.
    return [int(n) for n in np.linspace(0, clients - 1, wanted.clients).round()]


def record(wanted: Wanted, federation: Federation, clients: list[int]) -> dict[int, Episode]:
    """Record an episode of each client, before anything that costs more time."""
    if wanted.video is not None:
        check_target(wanted.video)
    return {client: federation.film(client, wanted.deterministic) for client in clients}


def write(wanted: Wanted, federation: Federation, found: Mapping[int, Episode]) -> dict[str, Any]:
    """Write the video, and return what is reported of it.

    Raises:
        UserError: it cannot be written.
    """
    assert wanted.video is not None
    world = federation.config.world
    shared = world.is_shared
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
    frames = grid(scenes, heading, world.legend, _WIDTHS[wanted.video.suffix.lower()])
    write_video(wanted.video, frames, next(iter(found.values())).frames_per_second)
    returns = {client: episode.episode_return for client, episode in found.items()}
    said: dict[str, Any] = {"file": str(wanted.video)}
    if wanted.clients is None:
        ((client, episode_return),) = returns.items()
        return said | {"client": client, "return": episode_return}
    return said | {"clients": list(returns), "returns": list(returns.values())}


def in_words(video: Mapping[str, Any]) -> str:
    """Describe the video in a line."""
    if "client" in video:
        total = digits(video["return"], 3)
        return f"video: {video['file']} (client {video['client']}, return {total})"
    pairs = zip(video["clients"], video["returns"], strict=True)
    said = ", ".join(f"client {client} {digits(value, 3)}" for client, value in pairs)
    return f"video: {video['file']} (returns: {said})"
