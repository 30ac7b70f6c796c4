"""The metrics log: one strict-JSON record on each line, durable as soon as it is appended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkl.errors import UserError
from fedkl.runs import files, strict_json


class MetricsLog:
    """An append-only log of records, usually one for each round.

    A record counts once its line has its line break. A crash can leave a torn last line; it is
    never read as a record, and the next `append` or `truncate_after` removes it.

    Args:
        path: the file; made at the first `append`.
    """

    def __init__(self, path: Path):
        self.path = Path(path)

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one record; when it returns, the record survives a power failure.

        Args:
            record: what `strict_json.encode` accepts.

        Raises:
            UserError: it could not be written; the log is as it was.
        """
        line = strict_json.encode(record) + b"\n"
        with files.explain_os_errors("write", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if os.fstat(descriptor).st_size == 0:
                    files.sync_directory(self.path.parent)  # the name of a new file, too
                _append(descriptor, line)
            finally:
                os.close(descriptor)

    def read(self) -> list[dict[str, Any]]:
        """Every whole record, in the order of the file; none if there is no file.

        Raises:
            UserError: a line other than the last is broken, which no crash does.
        """
        return [record for _, record in self._parse(self._bytes())]

    def truncate_after(self, round: int) -> None:
        """Drops, all at once, every record whose "round" is above the given one, and a torn line.

        Args:
            round: the round that the run goes on from.

        Raises:
            UserError: the log is broken in the middle, or could not be written; it is as it was.
        """
        before = self._bytes()
        after = b"".join(
            line + b"\n" for line, record in self._parse(before) if not _is_after(record, round)
        )
        if after != before:
            files.write_atomically(self.path, after)

    def _bytes(self) -> bytes:
        with files.explain_os_errors("read", self.path):
            try:
                return self.path.read_bytes()
            except FileNotFoundError:
                return b""

    def _parse(self, data: bytes) -> list[tuple[bytes, dict[str, Any]]]:
        # What follows the last line break is empty or torn.
        lines = data.split(b"\n")[:-1]
        parsed = []
        for number, line in enumerate(lines, start=1):
            try:
                parsed.append((line, strict_json.decode(line)))
            except ValueError as error:
                # After a power failure some file systems show zeros for blocks not yet written,
                # so the last line can be torn in front of its line break, too.
                if number == len(lines):
                    break
                raise UserError(
                    f"line {number} of {self.path} is not a whole JSON record; mend or delete it"
                ) from error
        return parsed


def _append(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    end = _end_of_last_record(descriptor, size)
    try:
        if end < size:
            os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        files.write_all(descriptor, line)
        os.fsync(descriptor)
    except BaseException:
        # A full disk takes a part of the line; leaving it would break the line after it.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


def _end_of_last_record(descriptor: int, size: int) -> int:
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    return os.pread(descriptor, size, 0).rfind(b"\n") + 1


def _is_after(record: Mapping[str, Any], round: int) -> bool:
    own = record.get("round")
    return isinstance(own, (int, float)) and own > round
