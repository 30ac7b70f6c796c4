"""`fedkl serve`: train with clients that join over a network."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.cli import common, console, interrupts
from fedkl.core.errors import UserError
from fedkl.network.flower.environment import require_flower

if TYPE_CHECKING:
    from fedkl.config.config import Config
    from fedkl.network.flower.serve_settings import ServeSettings

PORT = 9092


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_config(parser)
    common.add_new_run(parser)
    parser.add_argument(
        "--keys", type=Path, metavar="DIR", help="as `fedkl keys` makes them; default: none"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, metavar="P", help="default: 9092; with --local, any")
    parser.add_argument(
        "--superlink",
        metavar="HOST:PORT",
        help="use a SuperLink that runs on this machine already; default: start one",
    )
    parser.add_argument(
        "--wait", type=float, default=300.0, metavar="S", help="seconds to wait for enough clients"
    )
    parser.add_argument(
        "--local",
        type=int,
        metavar="N",
        help="start N clients on this machine, to try it out; default: none",
    )
    common.add_insecure_network(parser)
    parser.set_defaults(trains=True)


def run(options: argparse.Namespace) -> None:
    require_flower()
    with interrupts.importing():
        from fedkl.cli import network, progress
        from fedkl.config import checks
        from fedkl.io import compilation
        from fedkl.network.flower.engine import Flower
        from fedkl.server.loop import Federation
        from fedkl.training import lifecycle
        from fedkl.training.callbacks import notify

    compilation.enable_cache()
    serving = _serving(options)
    chosen = common.started(options, _config(options))
    options.run = options.run or common.run_named(options, chosen)
    network.check_servable(serving, chosen)
    checks.warn_of_doubts([chosen], console.warn)
    watched = network.Watched()
    engine = Flower(chosen, serving.federation, serving.wait, watched.screen)
    # What cannot work is refused before anything is written.
    created = lifecycle.creating(chosen, options.run, serving.write)
    with Federation(chosen, engine) as federation, created as run:
        callbacks = [progress.screen_bar(shown=watched.show), *progress.sinks_of(options)]
        with network.connecting(run, serving, engine, chosen):
            with notify(callbacks, run) as watch:
                lifecycle.run_remaining(run, watch, console.warn, federation)
            network.say_farewell(run, engine)
    progress.conclude(run)


def _serving(options: argparse.Namespace) -> ServeSettings:
    """Read from the options what is served, and where.

    Raises:
        UserError: they do not go together.
    """
    from fedkl.network import checks
    from fedkl.network.flower.serve_settings import HOST, ServeSettings
    from fedkl.network.messages import new_federation

    if not 0 < options.wait < math.inf:
        raise UserError(f"--wait must be a number of seconds above 0, not {options.wait:g}")
    if options.port is not None and not 1 <= options.port <= 65535:
        raise UserError(f"--port must be from 1 to 65535, not {options.port}")
    if options.keys is not None and options.insecure_network:
        raise UserError("--insecure-network uses no keys: give either that or --keys")
    there = None if options.superlink is None else checks.parse_address(options.superlink)
    if there is not None and (options.local is not None or options.port is not None):
        raise UserError("--superlink says where somebody else's server is, and starts none")
    if options.local is None:
        host, port = (options.host, options.port or PORT) if there is None else there
        secured = options.keys is not None or checks.is_loopback(host)
        if not secured and not options.insecure_network:
            raise UserError(
                f"clients that reach {host} over a network need --keys, as `fedkl keys` "
                "makes them; --insecure-network does without TLS and keys"
            )
        attached, name = there is not None, new_federation()
        return ServeSettings(host, port, options.keys, 0, attached, options.wait, name)
    if options.local < 1:
        raise UserError(f"--local must be at least 1, not {options.local}")
    if options.keys is not None or options.insecure_network or options.host != HOST:
        raise UserError("--local makes keys of its own, and is for this machine alone")
    port = options.port or 0
    return ServeSettings(HOST, port, None, options.local, False, options.wait, new_federation())


def _config(options: argparse.Namespace) -> Config:
    """Make the config; with --local, one that has as many clients as there are."""
    from fedkl.config import config

    def chosen(settings: dict[str, Any]) -> Config:
        return config.preset(
            options.preset, options.algorithm, options.seed, settings, options.plugin
        )

    settings = common.settings_of(options)
    if options.local is None:
        return chosen(settings)
    if "federation.clients" not in settings:
        settings["federation.clients"] = options.local
        per_round = min(chosen({}).federation.clients_per_round, options.local)
        settings.setdefault("federation.clients_per_round", per_round)
    return chosen(settings)
