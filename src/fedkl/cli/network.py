"""A federation that is served over a network, as `serve`, `resume` and `evaluate` do."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

from fedkl.cli import console
from fedkl.cli.console import warn
from fedkl.cli.progress import summary_of
from fedkl.config.config import Config
from fedkl.core.errors import UserError
from fedkl.core.processes import ended_by_signals, ignore_signals
from fedkl.io import files
from fedkl.io.progress import RoundProgress
from fedkl.network import checks, client_process, keys, status
from fedkl.network.flower.engine import Flower, Screen
from fedkl.network.flower.environment import Scratch
from fedkl.network.flower.fleet import Fleet
from fedkl.network.flower.key_rotation import KeyRotation
from fedkl.network.flower.serve_settings import HOST, ServeSettings
from fedkl.network.flower.superlink import SuperLink, SuperLinkConnection
from fedkl.network.flower.supervisor import LocalClients, local_nodes
from fedkl.network.signatures import Signer
from fedkl.network.status import FOLDER, FleetStatus
from fedkl.server.aggregation.reducers import suggested
from fedkl.training.directory import RunDirectory


class Watched:
    """The display of what happens: lines on stderr, and, on a terminal, a word beside the bar."""

    def __init__(self) -> None:
        self.screen = Screen(console.log, self._status)
        self._progress: RoundProgress | None = None

    def show(self, progress: RoundProgress) -> None:
        """Show it beside this bar from now on."""
        self._progress = progress

    def _status(self, text: str) -> None:
        if self._progress is not None:
            self._progress.say(text)


def check_servable(serving: ServeSettings, chosen: Config) -> None:
    """Require that a config can be served.

    Raises:
        UserError: it cannot.
    """
    if chosen.world.is_shared:
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
    _, client = chosen.first_states
    kept = (client.critic, client.observations, client.rewards, client.personal)
    if chosen.start_from and any(part is not None for part in kept):
        raise UserError(
            "clients over a network keep their own parts and are sent none of another run: with "
            "--from, federation.critic and the statistics must be federated, and "
            "federation.personal none"
        )
    if serving.local:
        if serving.port:
            checks.check_port(serving.host, serving.port)
        return
    if serving.attached:
        checks.check_listens(serving.host, serving.port)
    elif serving.keys is None:
        checks.check_port(serving.host, serving.port)
    else:
        checks.check_server(serving.keys, serving.host, serving.port)
    if not checks.is_loopback(serving.host) and (advice := _advice(chosen)):
        warn(advice)
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
def connecting(
    run: RunDirectory, serving: ServeSettings, engine: Flower, chosen: Config
) -> Iterator[None]:
    """Connect clients inside the block, and leave nothing of Flower's after it."""
    # What others write there, they would write through links.
    files.refuse_links(run.path / FOLDER)
    folder = (run.path / FOLDER).resolve()
    client_process.private_folder(folder)
    own = serving.keys
    with ended_by_signals(), contextlib.ExitStack() as stack:
        if serving.local:
            # Keys that lie in a run's directory could be those of the person who made it.
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
            ignore_signals()


def say_farewell(run: RunDirectory, engine: Flower) -> None:
    """Tell clients that the run is over, if it is."""
    if summary_of(run) is not None:
        engine.farewell()


def _link(
    folder: Path, serving: ServeSettings, own: Path | None, largest: int
) -> SuperLinkConnection:
    if serving.attached:
        return SuperLinkConnection(folder, checks.address_of(serving.host, serving.port), own)
    return SuperLink(folder, serving.host, serving.port, own, largest)
