"""Flower's server, run by this process: the SuperLink, and what starts the relay on it.

Only who has the secret can start an app on the server, so nobody who reaches the
port can run code here; without it there is no more of the port than clients need (`api_guard`). All
of it ends with this process.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from fedkl.core.errors import UserError
from fedkl.engines.base import Report
from fedkl.network import LARGEST
from fedkl.network.checks import address_of, parse_address
from fedkl.network.flower import api_guard, entry, secret
from fedkl.network.flower.app_allowlist import write_command
from fedkl.network.flower.carrier import RelayCarrier
from fedkl.network.flower.environment import start
from fedkl.network.flower.link import STARTING, Link
from fedkl.network.wire import shortened

ENDING = 8.0
"""Seconds that a process has to end by itself."""
_LINK, _EXEC = "superlink", "superexec"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_WRONG = re.compile(r"(\S+ )?(ERROR|CRITICAL)\b|[\w.]*(Error|Exception)\b|error:")
"""A line of a log, with a time before its level or without, or the last of a traceback. The word is
in names of loggers, too, which say that all is well."""
_TOLD = 2
"""Lines of a log that a message has."""
_WILDCARDS = ("0.0.0.0", "::", "")


class SuperLink(Link):
    """Flower's server. Use `connect` to start it, also again, and `stop` to end it."""

    def __init__(
        self, folder: Path, host: str, port: int, keys: Path | None, largest: int = LARGEST
    ) -> None:
        """Args:
        folder: for logs; nobody else may look into it.
        host: the address that it listens on.
        port: likewise.
        keys: the folder with the keys of all; None: nothing is encrypted, everybody may join.
        largest: bytes that an answer of a client may have.
        """
        near = "127.0.0.1" if host in _WILDCARDS else host
        super().__init__(folder, address_of(near, port), keys)
        self._host, self._port = host, port
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._secret: dict[str, str] = {}
        self._largest = largest

    def connect(self) -> RelayCarrier:
        """Starts all that is not running, and gives what carries messages to the clients.

        Raises:
            UserError: it does not come up; the message says what Flower says.
        """
        if any(process.poll() is not None for process in self._processes.values()):
            self.stop()
        if not self._processes:
            self._start()
        return super().connect()

    def stop(self) -> None:
        """Ends all of it."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + ENDING
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            # Each leads a group; what it started may be left of it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes = {}
        super().stop()

    def _start(self) -> None:
        self._introduce()
        self._secret = secret.make(self._scratch.path / "secret", self.address)
        self._secret[entry.ANSWER] = str(self._largest)
        link = ["--host", self._host, "--port", str(self._port)]
        # What it knows is in its memory: one that is started again must not take for connected
        # those who were when its predecessor died.
        link += ["--isolation", "process", "--disable-runtime-dependency-installation"]
        starter = ["--runtime-api-address", self.address, "--parent-pid", str(os.getpid())]
        if self._keys is None:
            link += ["--insecure"]
            starter += ["--insecure"]
        else:
            ca = str(self._keys.resolve() / "ca.crt")
            link += ["--ssl-ca-certfile", ca, "--enable-supernode-auth"]
            link += ["--ssl-certfile", str(self._keys.resolve() / "server.crt")]
            link += ["--ssl-keyfile", str(self._keys.resolve() / "server.key")]
            starter += ["--root-certificates", ca]
            self._secret[entry.KEYS] = str(self._keys.resolve())
        shared = ["--superexec-auth-secret-file", self._secret[secret.FILE]]
        environment = self._environment()
        self._run(_LINK, [entry.SERVER, *link, *shared], environment)
        self._wait()
        # All that it finds to start is our own app.
        path = write_command(self._scratch.path / "commands", "flwr-serverapp")
        only = environment | {"PATH": str(path)}
        self._run(_EXEC, ["flower-superexec", *starter, *shared], only)

    def _run(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Starts one of Flower's commands, which ends with this process."""
        attached = [sys.executable, "-P", "-m", "fedkl.network.flower.attached", str(os.getpid())]
        whole = [*attached, *entry.COMMAND, *command]
        self._processes[name] = start(whole, self._log(name), self._scratch.path, environment)

    def _wait(self) -> None:
        """Until it listens, and asks for the secret."""
        end = time.monotonic() + STARTING
        while time.monotonic() < end:
            if (reason := self.problem()) is not None:
                raise UserError(reason)
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._require_guard()
                return
            time.sleep(0.05)
        said = self._said(_LINK)
        raise UserError(f"Flower's server did not listen within {STARTING:g} s; {said}")

    def traffic(self) -> Report:
        """Bytes that clients have sent and were sent since it was started; nothing: it does not
        answer, which whoever needs it next will see."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            with contextlib.closing(self._connection()) as connection:
                headers = {secret.HEADER: secret.read(self._secret)}
                connection.request("GET", api_guard.TRAFFIC, headers=headers)
                found = json.loads(connection.getresponse().read())
            return {"traffic_received": found["received"], "traffic_sent": found["sent"]}
        return {}

    def _require_guard(self) -> None:
        """Sees to it that Flower's API is refused without the secret.

        Raises:
            OSError, http.client.HTTPException: it does not answer yet.
            UserError: this Flower cannot be guarded.
        """
        with contextlib.closing(self._connection()) as connection:
            connection.request("GET", "/openapi.json")
            if connection.getresponse().status != http.HTTPStatus.FORBIDDEN:
                raise UserError("this version of Flower does not let fedkl guard its port")

    def _connection(self) -> http.client.HTTPConnection:
        host, port = parse_address(self.address)
        if self._keys is None:
            return http.client.HTTPConnection(host, port, timeout=5.0)
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusted.load_verify_locations(self._keys / "ca.crt")
        trusted.check_hostname = False  # it is on this machine, under a name of its own
        return http.client.HTTPSConnection(host, port, timeout=5.0, context=trusted)

    def _environment(self) -> dict[str, str]:
        """Of Flower's processes: they have the secret."""
        return super()._environment() | self._secret

    def problem(self) -> str | None:
        """What has ended that should not."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                return f"Flower's {name} has ended; {self._said(name)}"
        return None

    def advice(self) -> str:
        """What to look at if the relay does not come up."""
        return self._said(_EXEC)

    def _said(self, name: str) -> str:
        """What is in its log, for who may not have the log any more: the last that it calls an
        error; else its last lines."""
        text = _COLOURS.sub("", self._log(name).read_text(encoding="utf-8", errors="replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        wrong = [line for line in lines if _WRONG.match(line)]
        told = " | ".join(shortened(line) for line in (wrong or lines)[-_TOLD:])
        return f"{name}.log ends with: {told or 'nothing'}"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"
