"""Flower's process on a client (the SuperNode), with all that it starts, and its log.

The processes are one group, which ends as one. Only the log tells how Flower's process is doing.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from fedkl.network import checks, client_process
from fedkl.network.client_process import ClientPlace
from fedkl.network.flower import secret, shim, zygote
from fedkl.network.flower.environment import Scratch, flower_environment, log_lines, start
from fedkl.network.flower.launch import FORKED, REFUSED
from fedkl.network.flower.place_file import VARIABLE, write_place
from fedkl.network.signatures import Verifier

_LEVEL = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*:\s*")
_CONNECTED = ("SuperNode ID: ", "Connection successful after")
_LOST = ("Connection attempt failed, retrying",)
_RECEIVED, _SENT = b"Receiving: ", b"Sent successfully"
_REFUSED = "the server does not know the key of this client, or counts it as connected already"
# In this order: the first that is there is the reason.
_FINAL = (
    ("certificate has expired", "the server's certificate has expired"),
    ("certificate is not yet valid", "the server's certificate is not valid yet"),
    ("mismatch, certificate is not valid", "the server's certificate is not for this address"),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is by another authority than ours"),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS"),
    ("SSL/TLS handshake error", "the server does not speak TLS as it should"),
    ("[code: 2001]", "the server wants a key of each client"),
    ("Exit Code: 606", "the server has a version of Flower that does not go with the one here"),
)


_TAIL = 1 << 16
_LONGEST_WORDS = max(len(words) for words in _CONNECTED + _LOST) - 1
LOG = "supernode.log"
STOP_TIMEOUT = 6.0
"""Seconds for it to sign off from the server; otherwise its key counts as connected for most of a
minute."""
_LOOPBACK = "127.0.0.1"
_LAUNCH = (sys.executable, "-P", "-m", "fedkl.network.flower.launch")


class Trouble(NamedTuple):
    """A problem of a SuperNode."""

    sentence: str
    passing: bool
    """True if another attempt may succeed."""


class NodeLog:
    """Reader of a log that grows."""

    def __init__(self, path: Path, start: int) -> None:
        """Args:
        path: of the log.
        start: byte at which the SuperNode's output begins.
        """
        self._path, self._start = path, start
        self._read = start
        self._end = b""
        """The last bytes that were read."""
        self._connected: bool | None = None

    def connected(self) -> bool | None:
        """Return True if the server answered last; None: unknown yet."""
        self._update()
        return self._connected

    def answered(self) -> bool:
        """Return True if each received message has been answered."""
        with self._path.open("rb") as file:
            file.seek(self._start)
            said = file.read()
        return said.count(_SENT) >= said.count(_RECEIVED)

    def trouble(self, code: int | None) -> Trouble | None:
        """Return the problem that the log shows, or None.

        Args:
            code: exit code of the SuperNode, negative for a signal; None: it runs.
        """
        if code is None:
            if self.connected() is False:
                return Trouble("the server does not answer", passing=True)
            return None
        if code < 0:
            return Trouble(f"Flower's SuperNode was ended by signal {-code}", passing=True)
        self._update()
        said = self._end.decode(errors="replace")
        # A line from before the connection is no reason for an end after it.
        said = said[max(0, _last(said, _CONNECTED)) :]
        if "[code: 2004]" in said:
            return Trouble(_REFUSED, passing=True)
        for words, sentence in _FINAL:
            if words in said:
                return Trouble(sentence, passing=False)
        return Trouble(f"Flower's SuperNode ended: {_last_line(said)}", passing=True)

    def _update(self) -> None:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:  # it was cut off, or replaced
                    self._read = 0
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:  # until a new one is there
            self._read, new = 0, b""
        self._read += len(new)
        # A phrase may have been written in two parts.
        text = (self._end[-_LONGEST_WORDS:] + new).decode(errors="replace")
        self._end = (self._end + new)[-_TAIL:]
        connected, lost = _last(text, _CONNECTED), _last(text, _LOST)
        if connected != lost:
            self._connected = connected > lost


def _last(log: str, words: tuple[str, ...]) -> int:
    """Return the last position of any of these phrases; -1: none."""
    return max(log.rfind(word) for word in words)


def _last_line(log: str) -> str:
    lines = (_LEVEL.sub("", line) for line in reversed(log_lines(log)))
    found = (line for line in lines if line and not line.startswith("For more information"))
    return next(found, "it said nothing")


class SuperNode:
    """A client's connection to the server."""

    def __init__(
        self, address: str, place: ClientPlace, folder: Path, ca: Path | None, key: Path | None
    ) -> None:
        """Args:
        address: of the server, `HOST:PORT`.
        place: of the client; without a process to watch, the client ends with this one.
        folder: for its logs, closed to other users.
        ca: certificate of the server's authority; None: no TLS.
        key: the client's private key, which needs TLS; None: any client may join.
        """
        self.address = address
        self.place = place if place.watch else place._replace(watch=os.getpid())
        self._folder = folder.resolve()
        self._scratch = Scratch()
        self._ca, self._key = ca, key
        self._process: subprocess.Popen[bytes] | None = None
        self._node_log: NodeLog | None = None

    @property
    def log(self) -> Path:
        """Path of Flower's log."""
        return self._folder / LOG

    def start(self) -> None:
        """Start it, also again; it connects, and reconnects, by itself.

        Raises:
            UserError: the folder cannot be used.
        """
        self._end(0.0)
        for name in (client_process.REFUSED, client_process.OVER):
            (self.place.folder / name).unlink(missing_ok=True)
        client_process.private_folder(self._folder)
        scratch = self._scratch.path
        write_place(scratch / "place.json", self.place, self._verifier())
        environment = flower_environment(self._scratch.home)
        environment[shim.FULL_PATH] = environment["PATH"]
        environment["PATH"] = str(zygote.write_shims(scratch, FORKED, REFUSED))
        environment[VARIABLE] = str(scratch / "place.json")
        # If another process takes it first, the SuperNode ends at once.
        port = str(checks.free_port(_LOOPBACK))
        environment |= secret.make(scratch / "secret", f"{_LOOPBACK}:{port}")
        self._node_log = NodeLog(self.log, self.log.stat().st_size if self.log.exists() else 0)
        apps = self._folder / zygote.LOG
        command = [*_LAUNCH, str(os.getpid()), str(scratch), str(apps), *self._arguments(port)]
        self._process = start(command, self.log, scratch, environment)

    def alive(self) -> bool:
        """Return True if Flower's process runs, with or without a connection."""
        return self._process is not None and self._code() is None

    def connected(self) -> bool:
        """Return True if it runs, and the server answered last."""
        return self._node_log is not None and self.alive() and bool(self._node_log.connected())

    def trouble(self) -> Trouble | None:
        """Return its problem, or None."""
        if self._process is None or self._node_log is None:
            return None
        return self._node_log.trouble(self._code())

    def refusal(self) -> str | None:
        """Return the reason why the client cannot take part; None: none is known."""
        try:
            return (self.place.folder / client_process.REFUSED).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def over(self) -> bool:
        """Return True if the server has said that its run is over."""
        return (self.place.folder / client_process.OVER).exists()

    def answered(self) -> bool:
        """Return True if all requests of the server are answered, or cannot be any more."""
        return self._node_log is None or not self.connected() or self._node_log.answered()

    def stop(self) -> None:
        """Stop it, all that it started, and the client's resident process."""
        self._end(STOP_TIMEOUT)
        client_process.stop(self.place, seconds=2)

    def __enter__(self) -> SuperNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _code(self) -> int | None:
        """Return the exit code of Flower's process, negative for a signal; None: it runs."""
        assert self._process is not None
        # Without a wait, its PID and its group's are not given to another process.
        kind = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self._process.pid, kind)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _end(self, seconds: float) -> None:
        """Stop Flower's processes, by force after some seconds."""
        if self._process is None:
            return
        if self.alive() and seconds:
            self._process.terminate()
            deadline = time.monotonic() + seconds
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        self._scratch.remove()

    def _verifier(self) -> Verifier | None:
        """Return the verifier of the server's messages; None without keys."""
        if self._ca is None or self._key is None:
            return None
        return Verifier.of(self._ca, self._key)

    def _arguments(self, port: str) -> list[str]:
        arguments = ["--superlink", self.address, "--host", _LOOPBACK, "--port", port]
        if self._ca is None:
            return [*arguments, "--insecure"]
        arguments += ["--root-certificates", str(self._ca.resolve())]
        if self._key is not None:
            arguments += ["--auth-supernode-private-key", str(self._key.resolve())]
        return arguments
