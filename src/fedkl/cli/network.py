"""The command that serves a federation to clients over a network."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedkl.cli import console, federation
from fedkl.cli.console import warn
from fedkl.cli.options import run_named, settings_of
from fedkl.config import config
from fedkl.config.config import Config
from fedkl.core.errors import UserError
from fedkl.core.processes import be_deaf, ended_by_signals
from fedkl.io import compilation, files
from fedkl.io.progress import RoundProgress
from fedkl.network import checks, client_process, keys, status
from fedkl.network.flower.engine import Flower, Screen
from fedkl.network.flower.environment import Scratch
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.key_rotation import KeyRotation
from fedkl.network.flower.serve_settings import HOST, ServeSettings
from fedkl.network.flower.superlink import SuperLink, SuperLinkConnection
from fedkl.network.flower.supervisor import LocalClients, local_nodes
from fedkl.network.messages import new_federation
from fedkl.network.signatures import Signer
from fedkl.network.status import FOLDER, FleetStatus
from fedkl.server.aggregation.reducers import suggested
from fedkl.server.loop import Federation
from fedkl.training import api, lifecycle
from fedkl.training.callbacks import notify
from fedkl.training.directory import RunDirectory
from fedkl.training.plugin_consent import of_run
from fedkl.worlds import SharedWorld

PORT = 9092


def serve(options: argparse.Namespace) -> None:
    """Trains with clients that join over the network."""
    compilation.enable_cache()
    serving = _serving(options)
    chosen = _config(options)
    options.run = options.run or run_named(options, chosen)
    _check(serving, chosen)
    watched = Watched()
    engine = Flower(chosen, serving.federation, serving.wait, watched.screen)
    # What cannot work is refused before anything is written.
    created = api.created(chosen, options.run, serving.write)
    with Federation(chosen, engine) as loop, created as run:
        callbacks = [federation.Bar(shown=watched.show), *federation.sinks_of(options)]
        with _serving_it(run, serving, engine, chosen):
            with notify(callbacks, run) as watch:
                lifecycle.run_remaining(run, watch, warn, loop)
            _say_farewell(run, engine)
    federation.conclude(run)


def resume(run: RunDirectory, options: argparse.Namespace) -> None:
    """Serve what is left of a run."""
    lengthened = federation.lengthen(run, options)
    serving = ServeSettings.read(run.path)
    chosen = of_run(run)
    watched = Watched()
    engine = Flower(chosen, serving.federation, serving.wait, watched.screen)
    # Nobody else's processes are disturbed by ours, up to the end of the last of them.
    with run.lock(), Federation(chosen, engine) as loop, contextlib.ExitStack() as stack:
        bar = federation.Bar(options.until, watched.show)
        callbacks = [bar, *federation.sinks_of(options)]
        summary = federation.summary_of(run)
        rounds = chosen.federation.rounds
        # A finished run has nothing left to do, unless it was made longer.
        if summary is None or summary.get("stalled") or summary["rounds"] < rounds:
            _check(serving, chosen)
            stack.enter_context(_serving_it(run, serving, engine, chosen))
        with notify(callbacks, run) as watch:
            until, accept = options.until, options.accept_changes
            lifecycle.run_remaining(run, watch, warn, loop, until, accept, lengthened)
        if bar.moved:
            _say_farewell(run, engine)
    federation.conclude(run, bar.moved)


@contextlib.contextmanager
def connected(run: RunDirectory, best: bool, accept: bool) -> Iterator[Federation]:
    """The federation of a run, with its clients connected.

    Args:
        run: its directory.
        best: as of its best round, not of its last checkpoint.
        accept: although it was made with something else.
    """
    serving = ServeSettings.read(run.path)
    chosen = of_run(run)
    engine = Flower(chosen, serving.federation, serving.wait, Watched().screen)
    with run.lock(), Federation(chosen, engine) as loop:
        lifecycle.load(run, warn, loop, best=best, accept=accept)
        _check(serving, chosen)
        with _serving_it(run, serving, engine, chosen):
            yield loop


class Watched:
    """Shows what goes on: lines on stderr, and, on a terminal, a word beside the bar."""

    def __init__(self) -> None:
        self.screen = Screen(console.log, self._status)
        self._progress: RoundProgress | None = None

    def show(self, progress: RoundProgress) -> None:
        """From now on beside this bar."""
        self._progress = progress

    def _status(self, text: str) -> None:
        if self._progress is not None:
            self._progress.say(text)


def _serving(options: argparse.Namespace) -> ServeSettings:
    """What the options ask for.

    Raises:
        UserError: they do not go together.
    """
    if find_spec("flwr") is None:
        raise UserError("a network needs Flower; install it with `pip install -e '.[flower]'`")
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
    """The config; with --local, one that has as many clients as there are."""

    def chosen(settings: dict[str, Any]) -> Config:
        return config.preset(
            options.preset, options.algorithm, options.seed, settings, options.plugin
        )

    settings = settings_of(options)
    if options.local is None:
        return chosen(settings)
    if "federation.clients" not in settings:
        settings["federation.clients"] = options.local
        per_round = min(chosen({}).federation.clients_per_round, options.local)
        settings.setdefault("federation.clients_per_round", per_round)
    return chosen(settings)


def _check(serving: ServeSettings, chosen: Config) -> None:
    """Whether it can be served.

    Raises:
        UserError: it cannot.
    """
    if isinstance(chosen.world, SharedWorld):
        raise UserError("clients that share one world cannot be on different machines")
    if chosen.federation.pools_data:
        raise UserError(
            "federation.data must be own over a network, not pooled: there clients' data stay "
            "where they are"
        )
    if chosen.evaluation.averaging:
        raise UserError(
            "evaluation.averaging must be false over a network: no client is sent another's policy"
        )
    if serving.local:
        if serving.port:
            checks.check_port(serving.host, serving.port)
        return
    if not checks.is_loopback(serving.host) and (advice := _advice(chosen)):
        warn(advice)
    if serving.attached:
        checks.check_listens(serving.host, serving.port)
    elif serving.keys is None:
        checks.check_port(serving.host, serving.port)
    else:
        checks.check_server(serving.keys, serving.host, serving.port)
    if serving.keys is None:
        warn("without TLS and keys everybody who reaches the port can take part")
        return
    for warning in checks.expiring(serving.keys):
        warn(warning)
    there = keys.public_keys(serving.keys)
    clients = chosen.federation.clients
    if missing := [client for client in range(clients) if client not in there]:
        raise UserError(
            f"{serving.keys} has no key of client {missing[0]}, and federation.clients is "
            f"{clients}: run `fedkl keys {serving.keys} --clients {clients}`"
        )


def _advice(chosen: Config) -> str | None:
    """Advise against a reducer that any client can pull along; None: there is none."""
    pulled = [link for link in chosen.aggregation.reducers if link.merges_moments]
    if not pulled:
        return None
    k, times = chosen.federation.clients_per_round, chosen.federation.max_move_factor
    length = "any length" if math.isinf(times) else f"up to {times / k:.2g} times the usual move"
    said = (
        f"{pulled[0].name} trusts every client: one of {k} that lies moves the model by {length} "
        "in each round, in any direction, and the statistics likewise (docs/validation.md)"
    )
    if settings := suggested(k):
        instead = " ".join(f"{name}={value}" for name, value in settings.items())
        return f"{said}; where a client may lie: --set {instead}"
    return f"{said}; where a client may lie, select at least 3 (federation.clients_per_round)"


@contextlib.contextmanager
def _serving_it(
    run: RunDirectory, serving: ServeSettings, engine: Flower, chosen: Config
) -> Iterator[None]:
    """Clients are connected inside the block, and nothing of Flower's is left after it."""
    # What others write there, they would write through links.
    files.refuse_links(run.path / FOLDER)
    folder = (run.path / FOLDER).resolve()
    client_process.private_folder(folder)
    own = serving.keys
    with ended_by_signals(), contextlib.ExitStack() as stack:
        if serving.local:
            # Keys that lie in a run's directory could be those of whoever made it.
            scratch = Scratch()
            stack.callback(scratch.remove)
            own = scratch.path / "keys"
            keys.make(own, serving.local)
            serving = serving._replace(port=serving.port or checks.free_port(HOST))
        link = _link(folder, serving, own, engine.largest_answer)
        stack.callback(link.stop)
        try:
            owners = None if own is None else keys.public_keys(own)
            engine.signer = None if own is None else Signer(own)
            engine.traffic = link.traffic
            engine.status = FleetStatus(folder / status.FILE)
            fleet = Fleet(link.connect, owners, console.log, engine.greet)
            stack.callback(fleet.close)
            if own is not None and engine.signer is not None:
                signer, known = engine.signer, engine.status
                engine.refresh = KeyRotation(own, link, fleet, signer, known, console.log).poll
            where = checks.address_of(serving.host, serving.port)
            console.log(f"serving on {where}; clients may join")
            if own is not None and serving.local:
                plugins = [Path(plugin) for plugin in chosen.plugins]
                nodes = local_nodes(link.address, folder, own, serving.local, plugins)
                clients = LocalClients(nodes, console.log)
                stack.callback(clients.stop)
                clients.start()
            engine.start(fleet)
            yield
        finally:
            be_deaf()


def _say_farewell(run: RunDirectory, engine: Flower) -> None:
    """Tells clients that the run is over, if it is."""
    if federation.summary_of(run) is not None:
        engine.farewell()


def _link(
    folder: Path, serving: ServeSettings, own: Path | None, largest: int
) -> SuperLinkConnection:
    if serving.attached:
        return SuperLinkConnection(folder, checks.address_of(serving.host, serving.port), own)
    return SuperLink(folder, serving.host, serving.port, own, largest)
