"""`fedkl evaluate`: evaluate a run's global policy on all clients, and film it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.cli import common, console, interrupts, output
from fedkl.core.text import counted, digits
from fedkl.network.flower.environment import require_flower

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
        from fedkl.training import evaluation, lifecycle
        from fedkl.training.directory import RunDirectory, is_served

    compilation.enable_cache()
    run = RunDirectory.open(options.run)
    common.require_consent(run, options)
    wanted = evaluation.Wanted(
        options.video, options.client, options.clients, options.deterministic
    )
    with contextlib.ExitStack() as stack:
        if is_served(run.path):
            federation = stack.enter_context(_connected(run, options))
        else:
            accept = options.accept_changes
            federation = lifecycle.load(run, console.warn, best=options.best, accept=accept)
        result = evaluation.evaluate(federation, run.path, options.episodes, wanted, console.warn)
        _print(federation, result, options)


@contextlib.contextmanager
def _connected(run: RunDirectory, options: argparse.Namespace) -> Iterator[Federation]:
    """Connect the clients of a run that is served over a network."""
    # Only such a run needs Flower.
    require_flower()
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


def _print(federation: Federation, result: Mapping[str, Any], options: argparse.Namespace) -> None:
    import numpy as np

    from fedkl.training import evaluation

    returns = result["return_per_client"]
    rows = [{"client": client, "return": r} for client, r in enumerate(returns)]
    if output.answered(options, result, rows):
        return
    kind = "deterministic" if options.deterministic else "stochastic"
    shared = federation.config.world.is_shared
    console.out.print(
        f"{kind} global policy after round {result['round']}, "
        f"{counted(options.episodes, 'episode')} {'shared by' if shared else 'on each of'} "
        f"{counted(int(np.isfinite(returns).sum()), 'client')}:\n"
        f"  mean return            {digits(result['return_mean'], 3)}\n"
        f"  worst client           {digits(result['return_min'], 3)} "
        f"(client {int(np.nanargmin(returns))})\n"
        f"  deviation over clients {digits(result['return_std'], 3)}"
    )
    if "video" in result:
        console.out.print(evaluation.in_words(result["video"]), soft_wrap=True)
