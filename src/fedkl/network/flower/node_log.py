"""What a SuperNode's log says: Flower's process has no other way to tell how it is doing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
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


class Trouble(NamedTuple):
    """What is wrong with a SuperNode."""

    sentence: str
    passing: bool
    """Whether it may be over when one tries again."""


class NodeLog:
    """Reads a log as it grows."""

    def __init__(self, path: Path, start: int) -> None:
        """Args:
        path: of the log.
        start: where what a SuperNode writes begins.
        """
        self._path, self._start = path, start
        self._read = start
        self._end = b""
        """Of what was read; nobody needs all of it."""
        self._connected: bool | None = None

    def connected(self) -> bool | None:
        """Whether the server was there when it was last asked; None: nobody knows yet."""
        self._update()
        return self._connected

    def answered(self) -> bool:
        """Whether the server has an answer to each message that has come."""
        with self._path.open("rb") as file:
            file.seek(self._start)
            said = file.read()
        return said.count(_SENT) >= said.count(_RECEIVED)

    def trouble(self, code: int | None) -> Trouble | None:
        """What is wrong, if anything.

        Args:
            code: with which the SuperNode has ended, below zero if by a signal; None: it runs.
        """
        if code is None:
            if self.connected() is False:
                return Trouble("the server does not answer", passing=True)
            return None
        if code < 0:
            return Trouble(f"Flower's SuperNode was ended by signal {-code}", passing=True)
        self._update()
        said = self._end.decode(errors="replace")
        # What it said before it was connected is no reason for its end afterwards.
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
        # A word may have been written in two parts.
        text = (self._end[-_LONGEST_WORDS:] + new).decode(errors="replace")
        self._end = (self._end + new)[-_TAIL:]
        connected, lost = _last(text, _CONNECTED), _last(text, _LOST)
        if connected != lost:
            self._connected = connected > lost


def _last(log: str, words: tuple[str, ...]) -> int:
    """Where one of these is for the last time; -1: nowhere."""
    return max(log.rfind(word) for word in words)


def _last_line(log: str) -> str:
    lines = (_LEVEL.sub("", _COLOUR.sub("", line)).strip() for line in log.splitlines())
    said = [line for line in lines if line and not line.startswith("For more information")]
    return said[-1] if said else "it said nothing"
