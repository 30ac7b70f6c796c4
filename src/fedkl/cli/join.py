"""`fedkl join`: make this machine a client of a federation over a network."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fedkl.cli import common, console, interrupts
from fedkl.core.errors import UserError
from fedkl.core.processes import ignore_signals
from fedkl.network.flower.environment import require_flower

if TYPE_CHECKING:
    from fedkl.network.client_process import ClientPlace
    from fedkl.network.flower.supernode import SuperNode

T = TypeVar("T")

LOOKING = 0.2
"""Seconds between two looks at Flower's process."""
AGAIN = 2.0
"""Seconds between two looks for a server that is not there yet."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="HOST:PORT", help="of the server")
    parser.add_argument("--client", type=int, required=True, metavar="N", help="its number, from 0")
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="with ca.crt and client-N.key of `fedkl keys`; default: none",
    )
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="what the client keeps; default: fedkl-client-N"
    )
    parser.add_argument(
        "--wait", type=float, default=300.0, metavar="S", help="seconds to wait for the server"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="end when the server's run is over; otherwise the client waits for the next one",
    )
    parser.add_argument(
        "--params",
        type=Path,
        metavar="FILE.toml",
        help="its own [world], which never leaves this machine; default: what the server says",
    )
    common.add_plugins(parser)
    common.add_insecure_network(parser)
    parser.set_defaults(computes=True)


def run(options: argparse.Namespace) -> None:
    require_flower()
    with interrupts.importing():
        from fedkl.network import checks
        from fedkl.network.client_process import ClientPlace
        from fedkl.network.flower.supernode import SuperNode
        from fedkl.network.preflight import try_files

    host, port = checks.parse_address(options.address)
    if options.client < 0:
        raise UserError(f"--client must be a number from 0, not {options.client}")
    if not 0 <= options.wait < math.inf:
        raise UserError(f"--wait must be a number of seconds from 0, not {options.wait:g}")
    try_files(options.params, options.plugin)
    ca, key = _waited(options, lambda: _keys(options, host, port))
    state = (options.state or Path(f"fedkl-client-{options.client}")).absolute()
    plugins = tuple(plugin.resolve() for plugin in options.plugin)
    world = options.params.resolve() if options.params else None
    place = ClientPlace(state, options.client, world, plugins, os.getpid())
    # No failure, and yet all that was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with _alone(place):
        _serve(SuperNode(options.address, place, state / "flower", ca, key), options.once)


def _waited(options: argparse.Namespace, look: Callable[[], T]) -> T:
    """Repeat a look at the server until it is there.

    Raises:
        UserError: it does not come in time, or something is wrong that does not pass.
    """
    from fedkl.network.checks import NotThereError

    end, said = time.monotonic() + options.wait, False
    while True:
        try:
            return look()
        except NotThereError as error:
            if time.monotonic() + AGAIN > end:
                raise
            if not said:
                console.log(f"client {options.client}: {error}; waiting for {options.wait:g} s")
                said = True
            time.sleep(AGAIN)


def _keys(options: argparse.Namespace, host: str, port: int) -> tuple[Path | None, Path | None]:
    """Find the authority's certificate and the client's key, both of use there."""
    from fedkl.network import checks

    if options.insecure_network:
        if options.keys is not None:
            raise UserError("--insecure-network uses no keys: give either that or --keys")
        checks.check_listens(host, port)
        return None, None
    if options.keys is None:
        raise UserError("--keys must say where ca.crt and this client's key are")
    for warning in checks.check_client(options.keys, options.client, host, port):
        console.warn(warning)
    return options.keys / "ca.crt", options.keys / f"client-{options.client}.key"


def _serve(node: SuperNode, once: bool) -> None:
    """Keep the client connected until a signal comes, or, where it is wanted once, the run is
    over."""
    from fedkl.network import client_process, status
    from fedkl.network.flower.supervisor import Supervisor
    from fedkl.network.sockets import NoAnswerError

    place = node.place
    client = place.client
    supervisor = Supervisor(node, lambda line: console.log(f"client {client}: {line}"))
    try:
        supervisor.start()
        # While Flower starts: the first message finds JAX loaded.
        client_process.ensure_running(place)
        while not (supervisor.over() and once):
            supervisor.poll()
            supervisor.write(place.directory / status.FILE)
            time.sleep(LOOKING)
    except NoAnswerError as error:
        raise UserError(str(error)) from error
    finally:
        ignore_signals()
        node.stop()


@contextlib.contextmanager
def _alone(place: ClientPlace) -> Iterator[None]:
    """Keep others from the same folder, as long as this process lives.

    Raises:
        UserError: there is another one, or the folder cannot be used.
    """
    from fedkl.network import client_process

    client_process.private_folder(place.folder)
    descriptor = os.open(place.folder / "join.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"client {place.client} runs already, with its state in {place.directory}"
            ) from error
        yield
    finally:
        os.close(descriptor)
