"""`spaces.json` of a run: what a policy sees and does there.

The world says it, but it needs JAX, or a simulator; a program that acts with a policy has neither.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from fedkl.core.errors import UserError
from fedkl.io import files, strict_json
from fedkl.simulators.spaces import Box, Numbers

FILE = "spaces.json"
_LARGEST = 2**22
"""Bytes; more would be no accident."""


class Spaces(NamedTuple):
    """The input and the output of a policy."""

    observation_size: int
    actions: Box | Numbers


def write(run: Path, spaces: Spaces) -> None:
    """Write the file, all at once; nothing if it is there."""
    path = run / FILE
    if not path.exists():
        kind = "box" if isinstance(spaces.actions, Box) else "numbers"
        record = {"observation_size": spaces.observation_size, kind: spaces.actions._asdict()}
        files.write_atomically(path, strict_json.encode_sealed(record))


def read(run: Path) -> Spaces:
    """Read what `write` wrote.

    Raises:
        UserError: it is not there, cannot be read, or is damaged.
    """
    path = run / FILE
    with files.explain_os_errors("read", path):
        try:
            data = files.read_bytes(path, _LARGEST)
        except FileNotFoundError as error:
            raise UserError(
                f"{run} has no {FILE}, which says what its policy sees and does; `fedkl resume` "
                "writes it"
            ) from error
    mend = "remove it, and `fedkl resume` writes it again"
    try:
        record = strict_json.decode_sealed(data, "observation_size")
    except ValueError as error:
        raise UserError(f"{path} {error}; {mend}") from error
    try:
        return _parsed(record)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged: {error}; {mend}") from error


def _parsed(record: dict[str, Any]) -> Spaces:
    size = record["observation_size"]
    if type(size) is not int:
        raise ValueError(f"observation_size is {size!r}")
    if "numbers" in record:
        return Spaces(size, Numbers(**record["numbers"]))
    box = Box(**record["box"])
    # JSON has no infinity.
    low = tuple(-math.inf if x is None else float(x) for x in box.low)
    high = tuple(math.inf if x is None else float(x) for x in box.high)
    return Spaces(size, Box(low, high, tuple(box.shape), box.dtype))
