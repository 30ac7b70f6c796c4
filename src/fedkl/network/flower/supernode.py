"""Flower's process on a client, with all that it starts: one group, which ends as one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from fedkl.network import client_process
from fedkl.network.client_process import Place
from fedkl.network.flower import secret, shim, zygote
from fedkl.network.flower.environment import Scratch, start, surroundings
from fedkl.network.flower.launch import FORKED, REFUSED
from fedkl.network.flower.node_log import NodeLog, Trouble
from fedkl.network.flower.place_file import VARIABLE, write_place
from fedkl.network.signatures import Verifier

LOG = "supernode.log"
ENDING = 6.0
"""Seconds that it may take to tell the server that it leaves; otherwise its key counts as connected
for most of a minute."""
_HERE = "127.0.0.1"
_LAUNCH = (sys.executable, "-P", "-m", "fedkl.network.flower.launch")


class SuperNode:
    """A client's connection to the server."""

    def __init__(
        self, address: str, place: Place, folder: Path, ca: Path | None, key: Path | None
    ) -> None:
        """Args:
        address: of the server, `HOST:PORT`.
        place: where the client lives; without a process to watch, the client ends with this one.
        folder: for its logs; nobody else may look into it.
        ca: the certificate of the authority by which the server's is; None: no TLS.
        key: the client's private key; None: everybody may join. Needs TLS.
        """
        self.address = address
        self.place = place if place.watch else place._replace(watch=os.getpid())
        self._folder = folder.resolve()
        self._scratch = Scratch()
        self._ca, self._key = ca, key
        self._process: subprocess.Popen[bytes] | None = None
        self._said: NodeLog | None = None

    @property
    def log(self) -> Path:
        """What Flower writes."""
        return self._folder / LOG

    def start(self) -> None:
        """Starts it, also again; it connects by itself, and again whenever it has lost the server.

        Raises:
            UserError: the folder cannot be used.
        """
        self._end(0.0)
        for name in (client_process.REFUSED, client_process.OVER):
            (self.place.folder / name).unlink(missing_ok=True)
        client_process.private_folder(self._folder)
        scratch = self._scratch.path
        write_place(scratch / "place.json", self.place, self._verifier())
        environment = surroundings(self._scratch.home)
        environment[shim.FULL_PATH] = environment["PATH"]
        environment["PATH"] = str(zygote.write_shims(scratch, FORKED, REFUSED))
        environment[VARIABLE] = str(scratch / "place.json")
        port = _free_port()
        environment |= secret.make(scratch / "secret", f"{_HERE}:{port}")
        self._said = NodeLog(self.log, self.log.stat().st_size if self.log.exists() else 0)
        apps = self._folder / zygote.LOG
        command = [*_LAUNCH, str(os.getpid()), str(scratch), str(apps), *self._arguments(port)]
        self._process = start(command, self.log, scratch, environment)

    def alive(self) -> bool:
        """Whether Flower's process runs; it may be without a connection."""
        return self._process is not None and self._code() is None

    def connected(self) -> bool:
        """Whether it runs, and the server was there when it was last asked."""
        return self._said is not None and self.alive() and bool(self._said.connected())

    def trouble(self) -> Trouble | None:
        """What is wrong with it, if anything."""
        if self._process is None or self._said is None:
            return None
        return self._said.trouble(self._code())

    def problem(self) -> str | None:
        """What is wrong with it, in a sentence; None: nothing that its log knows of."""
        trouble = self.trouble()
        return trouble.sentence if trouble else None

    def refusal(self) -> str | None:
        """Why the client cannot take part in what the server does, if that was found out."""
        try:
            return (self.place.folder / client_process.REFUSED).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def over(self) -> bool:
        """True if the server has said that its run is over."""
        return (self.place.folder / client_process.OVER).exists()

    def answered(self) -> bool:
        """Whether the server has an answer to all that it has asked of the client, or will not get
        one any more."""
        return self._said is None or not self.connected() or self._said.answered()

    def stop(self) -> None:
        """Ends it, all that it started, and the client's resident process."""
        self._end(ENDING)
        client_process.stop(self.place, seconds=2)

    def __enter__(self) -> SuperNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _code(self) -> int | None:
        """With which Flower's process has ended, below zero if by a signal; None: it runs."""
        assert self._process is not None
        # Its number stays its own until somebody waits for it, and so does that of its group.
        kind = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self._process.pid, kind)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _end(self, seconds: float) -> None:
        """Ends Flower's processes, by force after some seconds."""
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
        """What knows the messages of the server; where everybody may join, nothing does."""
        if self._ca is None or self._key is None:
            return None
        return Verifier.of(self._ca, self._key)

    def _arguments(self, port: str) -> list[str]:
        arguments = ["--superlink", self.address, "--host", _HERE, "--port", port]
        if self._ca is None:
            return [*arguments, "--insecure"]
        arguments += ["--root-certificates", str(self._ca.resolve())]
        if self._key is not None:
            arguments += ["--auth-supernode-private-key", str(self._key.resolve())]
        return arguments


def _free_port() -> str:
    """One on which its apps can reach it; if another process is quicker, it ends at once."""
    with socket.socket() as listener:
        listener.bind((_HERE, 0))
        return str(listener.getsockname()[1])
