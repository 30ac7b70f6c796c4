"""A client's states on its disk: `FEDERATION/ROUND.safetensors`, one for each round it trained in.

A state is written before the answer leaves, and is pending until a later request says that the
server accepted it (`since`). So after a crash on either side, or if the server resumes from an
older checkpoint, the client finds the state that the server continues from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from fedkl.clients.records import ClientState
from fedkl.io import files
from fedkl.io.arrays import from_arrays, to_arrays
from fedkl.network import wire
from fedkl.network.messages import check_federation
from fedkl.network.wire import MessageError

_KIND = "state"
_NAME = re.compile(r"(\d{6,})\.safetensors")
_FOLDER, _FILE = 0o700, 0o600
NO_LIMIT = 2**62


class StateError(Exception):
    """A state that the server names and the client cannot continue from; one sentence."""


class StoredState(NamedTuple):
    """The contents of a file."""

    since: int
    """Round of the state that this one was trained from."""
    turn: int
    """Turn of the request that it was trained for."""
    arrays: wire.Arrays


class States:
    """The states of one client in one federation."""

    def __init__(self, folder: Path, federation: str, first: ClientState) -> None:
        """Args:
        folder: the client's.
        federation: its name, as `messages.new_federation` made it.
        first: the client's state before its first round.
        """
        self._folder = folder / check_federation(federation)
        self._first = first

    def read(self, round: int) -> ClientState:
        """Return the state after a round; 0: the first.

        Raises:
            StateError: it is missing, damaged, or of another config.
        """
        if round == 0:
            return self._first
        try:
            return from_arrays(self._first, self._open(round).arrays)
        except ValueError as error:
            raise StateError(
                f"this client's state after round {round} is of another config: {error}"
            ) from error

    def write(self, round: int, since: int, turn: int, state: ClientState) -> None:
        """Write a new state, durably; one of the same round is replaced.

        Args:
            round: after which this is the state.
            since: the round of the state that it was trained from.
            turn: of the request that it was trained for.
            state: to write.

        Raises:
            UserError: the operating system refused.
        """
        header = {"round": round, "since": since, "turn": turn}
        data = wire.pack(_KIND, header, to_arrays(state), NO_LIMIT)
        with files.explain_os_errors("write", self._folder):
            files.make_directory(self._folder, _FOLDER)
            files.remove_temporaries(self._folder)
        files.write_atomically(self._path(round), data, _FILE)

    def turn(self, round: int) -> int:
        """Return the turn of the request that a round's state was trained for; 0: unreadable."""
        try:
            return self._open(round).turn
        except StateError:
            return 0

    def prune(self, since: int, floor: int) -> None:
        """Remove the states that the server can no longer ask for.

        These are all from before round `floor`, except the one that the client had then: the newest
        ancestor of the state that the server continues from.

        Args:
            since: the round of the state that the server continues from.
            floor: the server will not go back beyond the state that this round left.

        Raises:
            UserError: the operating system refused.
        """
        with files.explain_os_errors("read", self._folder):
            old = [round for round in self._rounds() if round < floor]
        if not old:
            return
        try:
            while since > floor:
                since = self._open(since).since
        except StateError:
            return  # It is unknown which of the old ones led here.
        with files.explain_os_errors("remove a file in", self._folder):
            for round in old:
                if round != since:
                    self._path(round).unlink(missing_ok=True)

    def _rounds(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def _path(self, round: int) -> Path:
        return self._folder / f"{round:06d}.safetensors"

    def _open(self, round: int) -> StoredState:
        path, what = self._path(round), f"this client's state after round {round}"
        with files.explain_os_errors("read", path):
            try:
                data = path.read_bytes()
            except FileNotFoundError as error:
                raise StateError(f"{what} is not on its disk") from error
        try:
            header, arrays = wire.unpack(_KIND, data, NO_LIMIT)
            wire.check_entries(header, {"round", "since", "turn"})
            its, since, turn = (wire.int_entry(header, name) for name in ("round", "since", "turn"))
        except MessageError as error:
            raise StateError(f"{what} is damaged: {error}") from error
        if its != round or since >= round:
            raise StateError(f"{what} is damaged: it is that of round {its}")
        return StoredState(since, turn, arrays)
