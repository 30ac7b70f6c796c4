"""The zygote: a pre-forked parent with Flower loaded, which forks for each command of Flower's.

Flower starts a process for every message, which takes seconds to import. It finds the command by
its bare name on PATH, so a shim there passes the arguments to the zygote. The fork runs the
command's own function, unchanged. Nothing of JAX is imported here: a process with JAX's threads
must not fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from fedkl.core.processes import die_with
from fedkl.network import sockets
from fedkl.network.flower import shim

Commands = Mapping[str, Callable[[], object]]
POLL_INTERVAL = 0.5
"""Seconds between two checks that the parent runs."""
LOG = "apps.log"
"""Name of the log of the zygote and its forks."""
MAX_ARGUMENT_BYTES = 1 << 20
"""Bytes of a command's arguments."""


def write_shims(folder: Path, names: Sequence[str], refused: Sequence[str] = ()) -> Path:
    """Write a shim for each command.

    Args:
        folder: in which the zygote will listen.
        names: of the commands.
        refused: names of others, which fail.

    Returns:
        The folder of the shims, to be all of PATH.
    """
    shims = folder / "bin"
    shims.mkdir(mode=0o700, exist_ok=True)
    start = [sys.executable, "-ISs", shim.__file__, str(folder)]
    scripts = {name: f'exec {shlex.join([*start, name])} "$@"' for name in names}
    scripts |= {name: f"echo 'fedkl: {name} was not run'; exit 1" for name in refused}
    for name, script in scripts.items():
        path = shims / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o700)
    return shims


def start(folder: Path, log: Path, commands: Commands, vital: str = "") -> int:
    """Fork the zygote, which ends with this process; this process must have no threads.

    Args:
        folder: for its socket; the working directory from now on, because the name of a socket must
            be short.
        log: file to which its output and its forks' is appended.
        commands: by name.
        vital: name of the command whose end is also the parent's.

    Returns:
        Its PID.
    """
    os.chdir(folder)
    listener = sockets.listen(Path(shim.SOCKET))
    parent = os.getpid()
    process = os.fork()
    if process:
        listener.close()
        return process
    code = 1
    try:
        # A log of its own: a command that cannot reach the parent logs the same words as the parent
        # that cannot reach the server.
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        serve(listener, commands, vital, parent)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def serve(listener: socket.socket, commands: Commands, vital: str, parent: int) -> None:
    """Fork for each connection, as long as the parent runs."""
    listener.settimeout(POLL_INTERVAL)
    running: dict[int, str] = {}
    while os.getppid() == parent:
        if vital in _ended(running):
            print(f"{vital} has ended, and so must all", flush=True)
            os.kill(parent, signal.SIGTERM)
            return
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection:
            arguments = _read(connection)
            if not arguments or arguments[0] not in commands:
                continue
            zygote = os.getpid()
            process = os.fork()
            if process == 0:
                # A command whose parent is gone would try to reach it for ever.
                die_with(zygote, signal.SIGKILL)
                listener.close()
                connection.close()
                _run(arguments, commands[arguments[0]])
            running[process] = arguments[0]
            with contextlib.suppress(
                OSError
            ):  # the shim may be gone; the command runs all the same
                connection.sendall(b"!")


def _ended(running: dict[int, str]) -> set[str]:
    """Remove the processes that have ended, and return their names."""
    names = set()
    while running and (process := os.waitpid(-1, os.WNOHANG)[0]):
        names.add(running.pop(process))
    return names


def _read(connection: socket.socket) -> list[str]:
    """Read the name and the arguments of a command; empty if they are not valid."""
    try:
        data = sockets.receive(connection, MAX_ARGUMENT_BYTES, time.monotonic() + shim.TIMEOUT)
        arguments = json.loads(data)
    except (OSError, EOFError, ValueError):
        return []
    return [str(argument) for argument in arguments] if isinstance(arguments, list) else []


def _run(arguments: list[str], command: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        sys.argv = arguments
        command()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _leave(code: int) -> NoReturn:
    """End a fork without its parent's exit handlers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
