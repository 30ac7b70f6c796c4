"""The metrics log: one strict-JSON record on each line, durable as soon as it is appended.

The last entry of a line, `chain`, is a checksum of the line and of all lines before it. So a line
that was edited, removed, repeated or put elsewhere is found, and the checksum of one line stands
for all up to there. Lines of a log that was begun without are covered by those that come after.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedkl.core.errors import UserError
from fedkl.io import files, strict_json
from fedkl.io.locks import unlocked

_CHAIN = "chain"
_DIGITS = 32
_SEAL = re.compile(rb'(, )?"chain": "([0-9a-f]{%d})"\}' % _DIGITS)
_SEAL_LENGTH = len('"chain": ""}') + _DIGITS
_LONGEST = 2**27
"""Bytes of a line: those of a round in which 100,000 clients train are a third of it."""
_AT_ONCE = 2**16
"""Bytes in which the end of the last whole line is looked for."""
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_CHANCE = re.compile(
    rb'(, )?"(?:(?:seconds|\w+_replaced|traffic_\w+)": [^,}]*|time": ' + _TEXT + rb'|retried": '
    rb'\[(?:(?:, )?\{"client": \d+, "reason": ' + _TEXT + rb"\})*\])"
)
"""Of a record: when the round ended and how long it took, how many workers or actors it cost,
what crossed a network, and who was asked again, as a lost connection may have made necessary."""


class LogLine(NamedTuple):
    """One line of the log.

    Attributes:
        data: its bytes, without the line break.
        record: what it says, without its checksum.
        head: what the checksums have come to after it.
        content_digest: the same without the time that rounds took, the workers that they cost and
            who was asked again, so that two runs of the same numbers have the same; a checkpoint
            says it of its log.
        sealed: whether it carries a checksum.
    """

    data: bytes
    record: dict[str, Any]
    head: str
    content_digest: str
    sealed: bool


class MetricsLog:
    """An append-only log of records, usually one for each round.

    A record counts once its line has its line break. A crash can leave a torn last line; it is
    never read as a record, and the next `append` or `truncate_after` removes it.

    Args:
        path: the file; made at the first `append`.
        require: is called before anything is written, and raises if it must not be.
    """

    def __init__(self, path: Path, require: Callable[[], None] = unlocked):
        self.path = Path(path)
        self._require = require

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record; when it returns, the record survives a power failure.

        Args:
            record: what `strict_json.encode` accepts; without a `chain` of its own.

        Raises:
            UserError: it could not be written, or not be read again; the log is as it was.
        """
        if _CHAIN in record:
            raise ValueError(f"the name {_CHAIN!r} belongs to the log")
        body = strict_json.encode(record)
        if len(body) + _SEAL_LENGTH + 2 > _LONGEST:
            raise UserError(f"a record of {len(body):,} bytes is too long for {self.path}")
        self._require()
        with files.explain_os_errors("write", self.path):
            descriptor = files.open_to_write(self.path)
            try:
                if (size := os.fstat(descriptor).st_size) == 0:
                    files.sync_directory(self.path.parent)  # the name of a new file, too
                line = _sealed(body, self._head(descriptor, size))
                _append(descriptor, line + b"\n")
            finally:
                os.close(descriptor)

    def read(self) -> list[dict[str, Any]]:
        """Every whole record, in the order of the file; none if there is no file.

        Raises:
            UserError: a line other than the last is broken, which no crash does.
        """
        return [line.record for line in self.lines()]

    def lines(self) -> Iterator[LogLine]:
        """Every whole line, one after the other, with checksums verified.

        Raises:
            UserError: as `read`.
        """
        before = LogLine(b"", {}, "", "", sealed=False)
        for number, data, last in self._split():
            try:
                line = _parsed(data, before)
            except _TornError as error:
                # After a power failure some file systems show zeros for blocks not yet written,
                # so the last line can be torn in front of its line break, too.
                if last:
                    return
                raise UserError(
                    f"line {number} of {self.path} is not a whole JSON record; mend or delete it"
                ) from error
            except _ChangedError as error:
                raise UserError(f"line {number} of {self.path} {error}") from error
            before = line
            yield line

    def count(self) -> int:
        """Count lines without reading them; 0 if there is no file."""
        return sum(1 for _ in self._split())

    def require_rounds(self, done: int = 0, content_digest: str = "") -> int:
        """Ensure that the log has every round once, in order, and belongs to a checkpoint.

        Args:
            done: the round of the checkpoint.
            content_digest: the checkpoint's of its log (`Line.content_digest`), or empty.

        Returns:
            How many rounds it has.

        Raises:
            UserError: it is not so; the sentence names the line or the rounds.
        """
        return sum(1 for _ in self.lines_of_rounds(done, content_digest))

    def lines_of_rounds(self, done: int = 0, content_digest: str = "") -> Iterator[LogLine]:
        """Every line, as `lines`, as long as it is so; see `require_rounds`."""
        number, found = 0, ""
        for number, line in enumerate(self.lines(), start=1):
            round = line.record.get("round")
            if round != number or type(round) is not int:
                raise UserError(
                    f"line {number} of {self.path} is of round {round!r:.20}, not of round "
                    f"{number}: lines are missing, repeated, or of two processes that wrote at once"
                )
            if number == done:
                found = line.content_digest
            yield line
        if number < done:
            raise UserError(
                f"{self.path} lacks rounds that the checkpoint of round {done} has: it ends after "
                f"round {number}"
            )
        if content_digest and found != content_digest:
            raise UserError(
                f"{self.path} is not the log that the checkpoint of round {done} belongs to"
            )

    def truncate_after(self, round: int) -> None:
        """Drops, all at once, every record whose "round" is above the given one, and a torn line.

        Args:
            round: the round that the run resumes from.

        Raises:
            UserError: the log is broken in the middle, or could not be written; it is as it was.
        """
        kept, dropped = [], False
        before_it = LogLine(b"", {}, "", "", sealed=False)
        for line in self.lines():
            if _is_after(line.record, round):
                dropped = True
                continue
            data = line.data
            if dropped and line.sealed:  # what was before it is gone
                data = _sealed(strict_json.encode(line.record), before_it.head)
            before_it = _parsed(data, before_it._replace(sealed=False))
            kept.append(data + b"\n")
        after = b"".join(kept)
        with files.explain_os_errors("read", self.path):
            before = files.read_bytes(self.path) if self.path.exists() else b""
        if after != before:
            self._require()
            files.write_atomically(self.path, after)

    def _split(self) -> Iterator[tuple[int, bytes, bool]]:
        """Number and bytes of every line that has a line break, and whether it is the last."""
        previous: bytes | None = None
        number = 0
        with files.explain_os_errors("read", self.path):
            try:
                files.require_ordinary(self.path)
            except FileNotFoundError:
                return
            with self.path.open("rb") as stream:
                while data := stream.readline(_LONGEST + 1):
                    if len(data) > _LONGEST:
                        read = number + (previous is not None)
                        raise UserError(
                            f"line {read + 1} of {self.path} is longer than {_LONGEST:,} bytes, "
                            "which is not sensible"
                        )
                    if not data.endswith(b"\n"):
                        break  # torn
                    if previous is not None:
                        number += 1
                        yield number, previous, False
                    previous = data[:-1]
        if previous is not None:
            yield number + 1, previous, True

    def _head(self, descriptor: int, size: int) -> str:
        """Return the checksum of the last line, if it is whole and has one."""
        if size == 0:
            return ""
        start = max(0, size - _SEAL_LENGTH - 1)
        end = os.pread(descriptor, size - start, start)
        if end.endswith(b"\n") and (seal := _SEAL.fullmatch(end[:-1])):
            return seal[2].decode("ascii")
        *_, head = ["", *(line.head for line in self.lines())]
        return head


class _TornError(Exception):
    """A line that is no record."""


class _ChangedError(Exception):
    """A line that is not as it was written; says in what."""


def _sealed(body: bytes, head: str) -> bytes:
    """A line with its checksum."""
    own = _digest(head, body)
    comma = b"" if body == b"{}" else b", "
    return body[:-1] + comma + f'"{_CHAIN}": "{own}"}}'.encode("ascii")


def content_digest(before: str, record: Mapping[str, Any]) -> str:
    """Return the digest of a log with one more record (`Line.content_digest`)."""
    return _content_digest(before, strict_json.encode(record))


def _content_digest(before: str, body: bytes) -> str:
    return _digest(before, _CHANCE.sub(b"", body))


def _parsed(data: bytes, before: LogLine) -> LogLine:
    """A line that comes after another."""
    try:
        record = strict_json.decode(data)
    except ValueError as error:
        raise _TornError from error
    stated = record.pop(_CHAIN, None)
    if stated is None:
        if before.sealed:
            raise _ChangedError(
                "carries no checksum, though lines before it do: it was edited or put there"
            )
        own, content_digest = (
            _digest(before.head, data),
            _content_digest(before.content_digest, data),
        )
        return LogLine(data, record, own, content_digest, sealed=False)
    seal = _SEAL.search(data, max(0, len(data) - _SEAL_LENGTH - 2))
    body = data[: seal.start()] + b"}" if seal and seal.end() == len(data) else b""
    if stated != (own := _digest(before.head, body)):
        raise _ChangedError(
            "does not fit its checksum: it, or what was before it, was edited, removed or repeated"
        )
    return LogLine(data, record, own, _content_digest(before.content_digest, body), sealed=True)


def _digest(head: str, body: bytes) -> str:
    return hashlib.sha256(head.encode("ascii") + body).hexdigest()[:_DIGITS]


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
    end = size
    while end:
        start = max(0, end - _AT_ONCE)
        if found := os.pread(descriptor, end - start, start).rfind(b"\n") + 1:
            return start + found
        end = start
    return 0


def _is_after(record: Mapping[str, Any], round: int) -> bool:
    own = record.get("round")
    return isinstance(own, (int, float)) and own > round
