"""Run `flower-supernode`: `python -m fedkl.network.flower.launch PARENT FOLDER LOG [ARG ...]`.

It is Flower's own command with six changes: it runs no app but ours; a pre-forked parent (`zygote`)
runs its commands; a process of this machine needs its secret to use its port; it polls more often
while there are messages; it ends with the process that started it; and it ends once it has lost the
server for good, where Flower's own would stay and do nothing.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from fedkl.network.flower import api_guard, app_allowlist, entry, secret, shim, zygote

COMMAND = "flower-supernode"
VITAL = "flower-superexec"
"""Command that starts the apps; Flower does not notice its end."""
FORKED = (shim.APP, VITAL)
"""Commands that the zygote runs; each would import Flower again."""
REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
"""Commands that a server could ask for, and that are not ours."""
LOADED_BY_APPS = ("flwr.clientapp", "fedkl.network.flower.client_app")
SLEEPING_MODULE = "flwr.supernode.start_client_internal"
"""Module of Flower's that sleeps for 3 s between two polls for a message, and for 0.5 s between two
polls for the end of an app."""
MIN_SLEEP, IDLE_SHARE = 0.2, 1 / 20
"""Sleep between two polls for a message: the least in seconds, and the share of the time since the
last message, up to Flower's own."""
_NO_MESSAGE = 3.0
"""Seconds that Flower sleeps if there was no message; it sleeps less while an app runs."""
POLL_INTERVAL = 0.5
"""Seconds between two checks that the parent runs."""
STOP_TIMEOUT = 10.0
"""Seconds for Flower to end by itself."""


class AdaptiveSleep:
    """A stand-in for the module `time`, whose `sleep` is shorter the newer the last message is.

    A client that waits for days must not cost as much as one that trains.
    """

    def __init__(self) -> None:
        self._message = time.monotonic()
        """Time of the last message."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep for a part of that time."""
        now = time.monotonic()
        if seconds < _NO_MESSAGE:
            self._message = now
        time.sleep(min(seconds, max(MIN_SLEEP, IDLE_SHARE * (now - self._message))))


def shorten_sleeps(module: str = SLEEPING_MODULE) -> bool:
    """Shorten the sleeps of a module of Flower's; return True if that worked.

    The module is internal to Flower. Without it messages are found later, and nothing else changes.
    """
    try:
        found: ModuleType = importlib.import_module(module)
    except ImportError:
        return False
    if getattr(found, "time", None) is not time:
        return False
    found.time = AdaptiveSleep()  # type: ignore[attr-defined]  # checked above
    return True


def main(arguments: list[str]) -> NoReturn:
    """Run until Flower ends or the parent is gone."""
    parent, folder, log = int(arguments[0]), Path(arguments[1]), Path(arguments[2])
    threads = threading.active_count()
    command = entry.load(COMMAND)
    app_allowlist.guard(shim.APP)
    commands = {
        shim.APP: _with_full_path(entry.load(shim.APP)),
        VITAL: _with_secret(entry.load(VITAL)),
    }
    for name in LOADED_BY_APPS:
        importlib.import_module(name)
    if threading.active_count() == threads:
        zygote.start(folder, log, commands, VITAL)
    else:  # a fork would not be safe; the shims find no zygote, and run the commands as they are
        print("fedkl: Flower starts threads when it is imported", file=sys.stderr, flush=True)
    password = secret.read()
    api_guard.install(lambda app: api_guard.Guard(app, password, (), None))
    if not shorten_sleeps():
        print("fedkl: this Flower sleeps as long as it likes", file=sys.stderr, flush=True)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    sys.argv = [COMMAND, *arguments[3:]]
    code = 1  # also where it comes back by itself: it has lost the server
    try:
        command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # The thread with which Flower serves its apps would keep the process.
        os._exit(code)


def _with_full_path(command: Callable[[], object]) -> Callable[[], object]:
    """Give a command the full PATH and the secret: an app starts the client's resident process."""

    def run() -> object:
        os.environ["PATH"] = os.environ[shim.FULL_PATH]
        return command()

    return _with_secret(run)


def _with_secret(command: Callable[[], object]) -> Callable[[], object]:
    """Attach the secret in a fork, which calls this process; calls to the server carry none."""

    def run() -> object:
        secret.attach()
        return command()

    return run


def _end_with(parent: int) -> None:
    """End this process when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(POLL_INTERVAL)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_TIMEOUT)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
