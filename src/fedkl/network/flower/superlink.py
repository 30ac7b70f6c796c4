"""Flower's server (the SuperLink) and the relay on it: one that this process runs, or another's.

Only a process that has the secret can start an app on the SuperLink, so a stranger who reaches its
port cannot run code here; without the secret the port offers only what clients need (`api_guard`).
All of it ends with this process.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fedkl.core.errors import UserError
from fedkl.engines.base import Report
from fedkl.io import files
from fedkl.network import MAX_MESSAGE_BYTES, client_process, sockets
from fedkl.network.checks import address_of, parse_address
from fedkl.network.flower import api_guard, entry, relay_client, secret
from fedkl.network.flower.environment import Scratch, flower_environment, log_lines, start
from fedkl.network.flower.relay_client import RelayClient
from fedkl.network.wire import one_line

APP = Path(__file__).parent / "app"
START_TIMEOUT = 60.0
"""Seconds for each step of the start."""
STOP_TIMEOUT = 8.0
"""Seconds for a process to end by itself."""
_LINK, _EXEC = "superlink", "superexec"
_WRONG = re.compile(r"(\S+ )?(ERROR|CRITICAL)\b|[\w.]*(Error|Exception)\b|error:")
"""An error in a log: its level, with or without a time before it, or the last line of a traceback.
Names of loggers have the word, too."""
_LOG_LINES = 2
"""Lines of a log in a message."""
_WILDCARDS = ("0.0.0.0", "::", "")


class SuperLinkConnection:
    """A SuperLink that another process runs. `connect` starts the relay on it, also again."""

    def __init__(self, folder: Path, address: str, keys: Path | None) -> None:
        """Args:
        folder: for logs, closed to other users.
        address: of the SuperLink for processes of this machine, `HOST:PORT`.
        keys: folder of all keys; None: nothing is encrypted, any client may join.
        """
        self.address = address
        self._folder = folder
        self._keys = keys
        self._scratch = Scratch()

    def connect(self) -> RelayClient:
        """Start the relay, and return the transport of messages to clients.

        Raises:
            UserError: it does not start; the message has Flower's output.
        """
        self._write_flower_config()
        self.register()
        return self._relay()

    def stop(self) -> None:
        """Remove the temporary files; the SuperLink itself is not ours."""
        self._scratch.remove()

    def problem(self) -> str | None:
        """Return the problem of the SuperLink, if it is known before the relay notices."""
        return None

    def traffic(self) -> Report:
        """Return the bytes that clients have sent and received; empty: unknown."""
        return {}

    def advice(self) -> str:
        """Return the advice for a relay that does not start."""
        return (
            f"the SuperLink at {self.address} must be one of this machine and this user, and find "
            "this fedkl"
        )

    def _write_flower_config(self) -> None:
        """Write the address and the certificate to Flower's settings."""
        client_process.private_folder(self._folder)
        connection: dict[str, object] = {"address": self.address}
        if self._keys is None:
            connection["insecure"] = True
        else:
            connection["root-certificates"] = str(self._keys.resolve() / "ca.crt")
        settings = {"superlink": {"default": entry.CONNECTION, entry.CONNECTION: connection}}
        path = self._scratch.home / "config.toml"
        files.write_atomically(path, tomli_w.dumps(settings).encode(), 0o600)

    def register(self) -> None:
        """Register the clients' keys with Flower, which forgets them when it restarts.

        A key that it knows already is no error.
        """
        if self._keys is None:
            return
        keys = [f"{path.stem}={path.resolve()}" for path in sorted(self._keys.glob("client-*.pub"))]
        if not keys:
            return
        said = self._flower([*entry.COMMAND, entry.REGISTER, *keys], START_TIMEOUT + len(keys))
        for name, reason in entry.registration_errors(said).items():
            raise UserError(f"Flower did not register the key of {name}: {reason}")

    def _relay(self) -> RelayClient:
        """Start the relay by Flower; it connects to a socket of ours."""
        path = self._scratch.path / "relay.sock"
        with sockets.listen(path) as listener:
            command = [
                *entry.COMMAND,
                "flwr",
                "run",
                str(APP),
                entry.CONNECTION,
                "--format",
                "json",
            ]
            said = self._flower([*command, "-c", f'socket="{path}"'], START_TIMEOUT)
            result = _json(said)
            if not result.get("success"):
                raise UserError(f"Flower did not start the relay: {_reason(result, said)}")
            return self._called(listener)

    def _called(self, listener: socket.socket) -> RelayClient:
        end = time.monotonic() + START_TIMEOUT

        def waiting() -> None:
            if (reason := self.problem()) is not None:
                raise UserError(reason)
            if time.monotonic() > end:
                raise UserError(
                    f"the relay did not come up within {START_TIMEOUT:g} s; {self.advice()}"
                )

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
            relay_client.receive_frame(connection, waiting)
            return RelayClient(connection, self.problem)

    def _environment(self) -> dict[str, str]:
        """Return the environment of Flower's processes."""
        return flower_environment(self._scratch.home)

    def _flower(self, command: list[str], seconds: float) -> str:
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


class SuperLink(SuperLinkConnection):
    """A SuperLink that this process runs. `connect` starts it, also again; `stop` ends it."""

    def __init__(
        self,
        folder: Path,
        host: str,
        port: int,
        keys: Path | None,
        largest: int = MAX_MESSAGE_BYTES,
    ) -> None:
        """Args:
        folder: for logs, closed to other users.
        host: to listen on.
        port: to listen on.
        keys: folder of all keys; None: nothing is encrypted, any client may join.
        largest: bytes that an answer of a client may have.
        """
        near = "127.0.0.1" if host in _WILDCARDS else host
        super().__init__(folder, address_of(near, port), keys)
        self._host, self._port = host, port
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._secret: dict[str, str] = {}
        self._largest = largest

    def connect(self) -> RelayClient:
        """Start all that is not running, and return the transport of messages to clients.

        Raises:
            UserError: it does not start; the message has Flower's output.
        """
        if any(process.poll() is not None for process in self._processes.values()):
            self.stop()
        if not self._processes:
            self._start()
        return super().connect()

    def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + STOP_TIMEOUT
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
        self._write_flower_config()
        self._secret = secret.make(self._scratch.path / "secret", self.address)
        self._secret[entry.ANSWER_VARIABLE] = str(self._largest)
        link = ["--host", self._host, "--port", str(self._port)]
        # Its state is in memory: after a restart, the nodes of its predecessor must not count as
        # connected.
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
            self._secret[entry.KEYS_VARIABLE] = str(self._keys.resolve())
        shared = ["--superexec-auth-secret-file", self._secret[secret.FILE]]
        environment = self._environment()
        self._run(_LINK, [entry.SERVER, *link, *shared], environment)
        self._wait()
        # All that it finds to start is our own app.
        path = entry.write_command(self._scratch.path / "commands", "flwr-serverapp")
        only = environment | {"PATH": str(path)}
        self._run(_EXEC, ["flower-superexec", *starter, *shared], only)

    def _run(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Start one of Flower's commands, which ends with this process."""
        whole = [*entry.COMMAND, f"{entry.PARENT}{os.getpid()}", *command]
        self._processes[name] = start(whole, self._log(name), self._scratch.path, environment)

    def _wait(self) -> None:
        """Wait until it listens, and asks for the secret."""
        end = time.monotonic() + START_TIMEOUT
        while time.monotonic() < end:
            if (reason := self.problem()) is not None:
                raise UserError(reason)
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._require_guard()
                return
            time.sleep(0.05)
        said = self._log_excerpt(_LINK)
        raise UserError(f"Flower's server did not listen within {START_TIMEOUT:g} s; {said}")

    def traffic(self) -> Report:
        """Return the bytes that clients have sent and received since the start.

        Empty if it does not answer, which the next operation notices.
        """
        with contextlib.suppress(OSError, http.client.HTTPException):
            with contextlib.closing(self._connection()) as connection:
                headers = {secret.HEADER: secret.read(self._secret)}
                connection.request("GET", api_guard.TRAFFIC, headers=headers)
                found = json.loads(connection.getresponse().read())
            return {"traffic_received": found["received"], "traffic_sent": found["sent"]}
        return {}

    def _require_guard(self) -> None:
        """Check that Flower's API is refused without the secret.

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
        """Return the environment of Flower's processes, with the secret."""
        return super()._environment() | self._secret

    def problem(self) -> str | None:
        """Return a sentence about a process that has ended, or None."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                return f"Flower's {name} has ended; {self._log_excerpt(name)}"
        return None

    def advice(self) -> str:
        """Return the advice for a relay that does not start."""
        return self._log_excerpt(_EXEC)

    def _log_excerpt(self, name: str) -> str:
        """Return the last errors in a log, or else its last lines."""
        end = files.read_end(self._log(name), files.END_OF_LOG)
        lines = log_lines(end.decode(errors="replace"))
        wrong = [line for line in lines if _WRONG.match(line)]
        last = " | ".join(one_line(line) for line in (wrong or lines)[-_LOG_LINES:])
        return f"{name}.log ends with: {last or 'nothing'}"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"
