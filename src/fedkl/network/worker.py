"""A client's resident process: `python -m fedkl.network.worker DIRECTORY CLIENT [OPTION ...]`.

It listens on a Unix socket in the client's folder, and answers one message at a time, each on a
connection of its own, until it gets SIGTERM or the process that it watches is gone.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.core.errors import UserError
from fedkl.network import MAX_MESSAGE_BYTES, client_process, sockets
from fedkl.network.client_process import ClientPlace

if TYPE_CHECKING:
    from fedkl.network.client import NetworkClient

IO_TIMEOUT = 60.0
"""Seconds to receive a message, and to send an answer."""


def main(arguments: list[str]) -> int:
    """Serve one client.

    Returns:
        The exit code: 0 after a signal, 2 if it cannot run.
    """
    options = _parse(arguments)
    if options.ready is not None and os.fork():
        # The caller waits for this process, and not for the one that stays.
        os._exit(0)
    place = ClientPlace(options.directory.resolve(), options.client, watch=options.watch)
    try:
        world = read_own_world(options.world)
        client_process.private_folder(place.folder)
        if client_process.claim(place.folder) is None:
            raise UserError(f"another process serves client {place.client} in {place.directory}")
        listener = sockets.listen(place.socket)
        # A pipe, because what a signal interrupts may hold the lock of anything else.
        over, end = os.pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.write(end, b"!"))
        if place.watch:
            threading.Thread(target=_watch, args=(place.watch, end), daemon=True).start()
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    if options.ready is not None:
        os.write(options.ready, b"!")
        os.close(options.ready)
    # JAX may compute for minutes in the thread; this one gets signals at once.
    serving = (listener, place, world, options.plugin)
    threading.Thread(target=_serve, args=serving, daemon=True).start()
    os.read(over, 1)
    place.socket.unlink(missing_ok=True)
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m fedkl.network.worker", description=__doc__)
    parser.add_argument("directory", type=Path, help="of all clients on this machine")
    parser.add_argument("client", type=int, help="its number")
    parser.add_argument("--world", type=Path, help="a TOML file with the client's own [world]")
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a Python file")
    parser.add_argument("--watch", type=int, default=0, help="end with the process of this number")
    parser.add_argument("--ready", type=int, help="go on in a new process; say so on this file")
    return parser.parse_args(arguments)


def _serve(
    listener: socket.socket, place: ClientPlace, world: dict[str, Any] | None, plugins: list[Path]
) -> None:
    """Answer messages until the process ends."""
    try:
        # After the socket is there: a message can wait for JAX just as well.
        client = _client(place, world, plugins)
        while True:
            connection, _ = listener.accept()
            with connection:
                _answer(client, connection)
    except BaseException:  # without this thread the process is of no use
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _client(place: ClientPlace, world: dict[str, Any] | None, plugins: list[Path]) -> NetworkClient:
    from fedkl.io.compilation import enable_cache
    from fedkl.io.user_folders import cache_folder
    from fedkl.network.client import NetworkClient

    enable_cache()
    compiling = partial(client_process.compiling, place.folder, cache_folder())
    return NetworkClient(place.folder, place.client, world, plugins, compiling=compiling)


def _answer(client: NetworkClient, connection: socket.socket) -> None:
    """Answer one message; drop it if the connection is gone."""
    try:
        connection.settimeout(IO_TIMEOUT)
        if not connection.recv(1, socket.MSG_PEEK):
            return  # it was `is_listening`
        sockets.require_same_user(connection)
        request = sockets.receive(connection, MAX_MESSAGE_BYTES, time.monotonic() + IO_TIMEOUT)
        reply = client.answer(request)
        sockets.send(connection, reply, time.monotonic() + IO_TIMEOUT)
    except (EOFError, OSError) as error:
        if str(error):
            print(f"a message was dropped: {error}", file=sys.stderr, flush=True)


def read_own_world(path: Path | None) -> dict[str, Any] | None:
    """Return the table `[world]` of a client's own file.

    Raises:
        UserError: the file or the table is missing.
    """
    if path is None:
        return None
    # Here, because the process that forwards bytes imports this file, and nothing large.
    from fedkl.io import strict_toml

    table = strict_toml.read(path).get("world")
    if not isinstance(table, dict):
        raise UserError(f"the client's world {path} has no table [world]")
    return table


def _watch(process: int, end: int) -> None:
    """Write to a file descriptor when a process is gone."""
    try:
        if hasattr(os, "pidfd_open"):
            descriptor = os.pidfd_open(process)
            select.select([descriptor], [], [])
        else:
            while True:
                os.kill(process, 0)
                time.sleep(1)
    except ProcessLookupError:
        pass
    os.write(end, b"!")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of JAX and of simulators are still there, and all that is to be kept is on the disk.
    os._exit(code)
