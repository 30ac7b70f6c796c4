"""A process that has Flower loaded, and forks for each command of Flower's that is to be run.

Flower starts a process for every message, which takes seconds to import what it needs. It finds it
by its bare name on PATH, so there is a shim that hands the arguments to this process. What
runs in the fork is the command's own function, unchanged. Nothing of JAX is imported here: a
process with JAX's threads must not fork.
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
"""Seconds between two looks whether the parent is there."""
LOG = "apps.log"
"""How that file is called."""
MAX_ARGUMENT_BYTES = 1 << 20
"""Bytes of a command's arguments."""


def write_shims(folder: Path, names: Sequence[str], refused: Sequence[str] = ()) -> Path:
    """Writes a shim for each command.

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
    """Forks the process that forks; the caller has no threads, and is the parent that it ends with.

    Args:
        folder: where it listens; the current one from now on, because the name of a socket must be
            short.
        log: what it and its forks say is added to this file.
        commands: what it can run, each by its name.
        vital: the name of one that the parent cannot do without: its end is the parent's.

    Returns:
        Its number.
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
        # What it runs says when it cannot reach the parent, in the words in which the parent says
        # that it cannot reach the server.
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
    """Forks for each that connects, as long as the parent is there."""
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
                # A command whose parent is gone asks for it again and again, for ever.
                die_with(zygote, signal.SIGKILL)
                listener.close()
                connection.close()
                _run(arguments, commands[arguments[0]])
            running[process] = arguments[0]
            with contextlib.suppress(OSError):  # whoever asked may be gone; it runs all the same
                connection.sendall(b"!")


def _ended(running: dict[int, str]) -> set[str]:
    """The names of those that have ended; they are taken out."""
    names = set()
    while running and (process := os.waitpid(-1, os.WNOHANG)[0]):
        names.add(running.pop(process))
    return names


def _read(connection: socket.socket) -> list[str]:
    """The name and the arguments of a command; nothing if somebody said something else."""
    try:
        data = sockets.receive(connection, MAX_ARGUMENT_BYTES, time.monotonic() + shim.TIMEOUT)
        arguments = json.loads(data)
    except (OSError, EOFError, ValueError):
        return []
    return [str(argument) for argument in arguments] if isinstance(arguments, list) else []


def _run(arguments: list[str], command: Callable[[], object]) -> NoReturn:
    """Is that command from now on."""
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
    """Ends a fork, without what its parent wanted to do at its own end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
