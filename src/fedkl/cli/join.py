"""The command that makes this machine a client of a federation."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fedkl.cli import console
from fedkl.errors import UserError
from fedkl.network import asking, checks
from fedkl.network.asking import Place
from fedkl.network.flower.supernode import SuperNode
from fedkl.network.flower.supervisor import Supervisor
from fedkl.network.sockets import NoAnswerError
from fedkl.network.trying import try_files
from fedkl.processes import be_deaf

LOOKING = 0.2
"""Seconds between two looks at Flower's process."""


def join(options: argparse.Namespace) -> None:
    """Answers what a server asks, until it is told to end."""
    if find_spec("flwr") is None:
        raise UserError("a network needs Flower; install it with `pip install -e '.[flower]'`")
    host, port = checks.parse_address(options.address)
    if options.client < 0:
        raise UserError(f"--client must be a number from 0, not {options.client}")
    try_files(options.params, options.plugin)
    ca, key = _keys(options, host, port)
    state = (options.state or Path(f"fedkl-client-{options.client}")).absolute()
    plugins = tuple(plugin.resolve() for plugin in options.plugin)
    world = options.params.resolve() if options.params else None
    place = Place(state, options.client, world, plugins, os.getpid())
    # No failure, and yet all that was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with _alone(place):
        _serve(SuperNode(options.address, place, state / "flower", ca, key))


def _keys(options: argparse.Namespace, host: str, port: int) -> tuple[Path | None, Path | None]:
    """The authority's certificate and the client's key, both of use there."""
    if options.insecure_network:
        if options.keys is not None:
            raise UserError("--insecure-network uses no keys: give either that or --keys")
        checks.check_listens(host, port)
        return None, None
    if options.keys is None:
        raise UserError("--keys must say where ca.crt and this client's key are")
    checks.check_client(options.keys, options.client, host, port)
    return options.keys / "ca.crt", options.keys / f"client-{options.client}.key"


def _serve(node: SuperNode) -> None:
    """Keeps the client connected until a signal comes."""
    client = node.place.client
    supervisor = Supervisor(node, lambda line: console.say(f"client {client}: {line}"))
    try:
        supervisor.start()
        # While Flower starts: the first message finds JAX loaded.
        asking.ensure(node.place)
        while True:
            supervisor.look()
            time.sleep(LOOKING)
    except NoAnswerError as error:
        raise UserError(str(error)) from error
    finally:
        be_deaf()
        node.stop()


@contextlib.contextmanager
def _alone(place: Place) -> Iterator[None]:
    """Keeps others from the same folder, as long as this process lives.

    Raises:
        UserError: there is another one, or the folder cannot be used.
    """
    asking.private_folder(place.folder)
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
