"""A SuperLink that runs, and the relay on it, by which this process sends and gets messages."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fedkl.core.errors import UserError
from fedkl.engines.base import Report
from fedkl.io import files
from fedkl.network import client_process, sockets
from fedkl.network.flower import entry, frames
from fedkl.network.flower.carrier import RelayCarrier
from fedkl.network.flower.environment import Scratch, surroundings
from fedkl.network.flower.registering import CONNECTION, problems_in

APP = Path(__file__).parent / "app"
STARTING = 60.0
"""Seconds that each step may take."""


class Link:
    """A SuperLink of somebody else's. Use `connect` to have the relay started on it, also again."""

    def __init__(self, folder: Path, address: str, keys: Path | None) -> None:
        """Args:
        folder: for logs; nobody else may look into it.
        address: where processes of this machine find it, `HOST:PORT`.
        keys: the folder with the keys of all; None: nothing is encrypted, everybody may join.
        """
        self.address = address
        self._folder = folder
        self._keys = keys
        self._scratch = Scratch()

    def connect(self) -> RelayCarrier:
        """Gives what carries messages to the clients.

        Raises:
            UserError: it does not come up; the message says what Flower says.
        """
        self._introduce()
        self.register()
        return self._relay()

    def stop(self) -> None:
        """Removes what Flower's commands had; the SuperLink itself is not ours."""
        self._scratch.remove()

    def problem(self) -> str | None:
        """What is wrong with it, if that is known before the relay notices."""
        return None

    def traffic(self) -> Report:
        """Bytes that clients have sent and were sent; nothing: who knows."""
        return {}

    def advice(self) -> str:
        """What to look at if the relay does not come up."""
        return (
            f"the SuperLink at {self.address} must be one of this machine and this user, and find "
            "this fedkl"
        )

    def _introduce(self) -> None:
        """Tells Flower's commands where it is."""
        client_process.private_folder(self._folder)
        connection: dict[str, object] = {"address": self.address}
        if self._keys is None:
            connection["insecure"] = True
        else:
            connection["root-certificates"] = str(self._keys.resolve() / "ca.crt")
        settings = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        path = self._scratch.home / "config.toml"
        files.write_atomically(path, tomli_w.dumps(settings).encode(), 0o600)

    def register(self) -> None:
        """Tells Flower which keys may connect, every time: it may have been started again. Those
        that it knows already are no mistake."""
        if self._keys is None:
            return
        keys = [f"{path.stem}={path.resolve()}" for path in sorted(self._keys.glob("client-*.pub"))]
        if not keys:
            return
        module = [sys.executable, "-P", "-m", "fedkl.network.flower.registering"]
        said = self._flower([*module, *keys], STARTING + len(keys))
        for name, reason in problems_in(said).items():
            raise UserError(f"Flower did not register the key of {name}: {reason}")

    def _relay(self) -> RelayCarrier:
        """Has Flower start the relay, which calls us on a socket."""
        path = self._scratch.path / "relay.sock"
        with sockets.listen(path) as listener:
            command = [*entry.COMMAND, "flwr", "run", str(APP), CONNECTION, "--format", "json"]
            said = self._flower([*command, "-c", f'socket="{path}"'], STARTING)
            result = _json(said)
            if not result.get("success"):
                raise UserError(f"Flower did not start the relay: {_reason(result, said)}")
            return self._called(listener)

    def _called(self, listener: socket.socket) -> RelayCarrier:
        end = time.monotonic() + STARTING

        def waiting() -> None:
            if (reason := self.problem()) is not None:
                raise UserError(reason)
            if time.monotonic() > end:
                raise UserError(f"the relay did not come up within {STARTING:g} s; {self.advice()}")

        listener.settimeout(0.5)
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                waiting()
                continue
            try:
                sockets.require_same_user(connection)
            except PermissionError as error:
                raise UserError(f"that is not the relay: {error}") from error
            frames.receive(connection, waiting)
            return RelayCarrier(connection, self.problem)

    def _environment(self) -> dict[str, str]:
        """Of Flower's processes."""
        return surroundings(self._scratch.home)

    def _flower(self, command: list[str], seconds: float) -> str:
        """What a command of Flower's prints."""
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                env=self._environment(),
                cwd=self._scratch.path,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UserError(
                f"`{shlex.join(command[:6])}` took longer than {seconds:g} s"
            ) from error
        return done.stdout + done.stderr


def _json(text: str) -> Mapping[str, object]:
    start, end = text.find("{"), text.rfind("}")
    with contextlib.suppress(ValueError):
        found = json.loads(text[start : end + 1])
        return found if isinstance(found, dict) else {}
    return {}


def _reason(result: Mapping[str, object], said: str) -> str:
    return str(result.get("error-message") or " ".join(said.split())[-300:])
