"""`fedkl evaluate`: evaluate a run's global policy on all clients, and film it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedkl.cli import common, console, interrupts, output
from fedkl.core.errors import UserError
from fedkl.core.text import counted, digits

if TYPE_CHECKING:
    from fedkl.server.loop import Federation
    from fedkl.training.directory import RunDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_run(parser)
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="for each client")
    parser.add_argument("--deterministic", action="store_true", help="the mode, not a sample")
    parser.add_argument(
        "--video",
        type=Path,
        metavar="FILE",
        help="film an episode too, as FILE.mp4 or FILE.gif; default: no film",
    )
    parser.add_argument("--client", type=int, metavar="N", help="whose world is filmed; default: 0")
    parser.add_argument(
        "--clients", type=int, metavar="N", help="film so many side by side; default: one"
    )
    common.add_best(parser)
    common.add_formats(parser)
    common.add_accept_changes(parser)
    common.add_consent(parser)
    parser.set_defaults(computes=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.io import compilation
        from fedkl.training import lifecycle
        from fedkl.training.directory import RunDirectory, is_served

    compilation.enable_cache()
    run = RunDirectory.open(options.run)
    common.require_consent(run, options)
    if not is_served(run.path):
        accept = options.accept_changes
        federation = lifecycle.load(run, console.warn, best=options.best, accept=accept)
        return _evaluate(federation, options)
    with _connected(run, options) as federation:
        _evaluate(federation, options)


@contextlib.contextmanager
def _connected(run: RunDirectory, options: argparse.Namespace) -> Iterator[Federation]:
    """Connect the clients of a run that is served over a network."""
    # Only such a run needs Flower.
    from fedkl.cli.network import Watched, check_servable, connecting
    from fedkl.network.flower.engine import Flower
    from fedkl.network.flower.serve_settings import ServeSettings
    from fedkl.server.loop import Federation
    from fedkl.training import lifecycle
    from fedkl.training.plugin_consent import of_run

    serving = ServeSettings.read(run.path)
    chosen = of_run(run)
    engine = Flower(chosen, serving.federation, serving.wait, Watched().screen)
    with run.lock(), Federation(chosen, engine) as federation:
        best, accept = options.best, options.accept_changes
        lifecycle.load(run, console.warn, federation, best=best, accept=accept)
        check_servable(serving, chosen)
        with connecting(run, serving, engine, chosen):
            yield federation


def _evaluate(federation: Federation, options: argparse.Namespace) -> None:
    import numpy as np

    from fedkl.cli import video
    from fedkl.clients.work import Evaluate
    from fedkl.worlds import SharedWorld

    if federation.state.round == 0:
        raise UserError(f"{options.run} has no finished round to evaluate yet")
    if options.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {options.episodes}")
    clients = federation.config.federation.clients
    episodes = video.episodes(options, federation, video.chosen(options, federation))
    asked = Evaluate(options.episodes, options.deterministic)
    returns, failures = federation.evaluation(asked)()
    per_client = returns.mean(axis=1)
    if failures:
        reasons = "; ".join(f"client {client}: {why}" for client, why in [*failures.items()][:5])
        if len(failures) == clients:
            raise UserError(f"no client has given a return ({reasons})")
        console.warn(
            f"{len(failures)} of {clients} clients gave no return, and do not count ({reasons})"
        )
    result = {
        "round": int(federation.state.round),
        "episodes": options.episodes,
        "deterministic": options.deterministic,
        "return_mean": float(np.nanmean(per_client)),
        "return_min": float(np.nanmin(per_client)),
        "return_std": float(np.nanstd(per_client)),
        "return_per_client": [float(r) for r in per_client],
    }
    if episodes:
        result["video"] = video.write(options, federation, episodes)
    rows = [{"client": client, "return": float(r)} for client, r in enumerate(per_client)]
    if output.answered(options, result, rows):
        return
    kind = "deterministic" if options.deterministic else "stochastic"
    worst = int(np.nanargmin(per_client))
    shared = isinstance(federation.config.world, SharedWorld)
    console.out.print(
        f"{kind} global policy after round {result['round']}, "
        f"{counted(options.episodes, 'episode')} {'shared by' if shared else 'on each of'} "
        f"{counted(clients - len(failures), 'client')}:\n"
        f"  mean return            {digits(result['return_mean'], 3)}\n"
        f"  worst client           {digits(result['return_min'], 3)} (client {worst})\n"
        f"  deviation over clients {digits(result['return_std'], 3)}"
    )
    if episodes:
        console.out.print(video.in_words(result["video"]), soft_wrap=True)
