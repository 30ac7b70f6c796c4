"""`spaces.json` of a run: what a policy sees and does there.

The world says it, but it needs JAX, or a simulator; a program that acts with a policy has neither.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkl.core.errors import UserError
from fedkl.io import files, strict_json
from fedkl.simulators.spaces import Box, Numbers, Spaces

FILE = "spaces.json"
_LARGEST = 2**22
"""Bytes; more would be no accident."""
_MOST = 2**31
"""Numbers that a policy can see or choose from; memory ends long before."""
_MOST_AXES = 32
"""Of an array, in any version of NumPy."""
_WHOLE, _REAL = (
    [np.dtype(code).name for code in np.typecodes[kind]] for kind in ("AllInteger", "Float")
)


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
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; {mend}") from error


def _parsed(record: dict[str, Any]) -> Spaces:
    """Build what a record says.

    Raises:
        ValueError: no policy can see or do that; the message names the entry.
    """
    size = _whole("observation_size", record.get("observation_size"), 0, _MOST)
    if "numbers" in record:
        return Spaces(size, _numbers(_table(record, "numbers", Numbers)))
    return Spaces(size, _box(_table(record, "box", Box)))


def _numbers(table: dict[str, Any]) -> Numbers:
    kind = _kind(table["dtype"], _WHOLE)
    limits = np.iinfo(kind)
    size = _whole("size", table["size"], 1, _MOST)
    first = _whole("first", table["first"], int(limits.min), int(limits.max) - size + 1)
    return Numbers(size, first, kind)


def _box(table: dict[str, Any]) -> Box:
    kind = _kind(table["dtype"], _REAL)
    low = _bounds("low", table["low"], -math.inf, kind)
    high = _bounds("high", table["high"], math.inf, kind)
    if len(low) != len(high) or any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("low and high are no limits of the same entries")
    shape = table["shape"]
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
        raise ValueError(f"shape is {shape!r:.40}")
    sides = tuple(_whole("shape", side, 0, _MOST) for side in shape)
    if math.prod(sides) != len(low):
        raise ValueError(f"shape {shape!r:.40} is not that of {len(low)} entries")
    return Box(low, high, sides, kind)


def _table(record: dict[str, Any], name: str, kind: type[Box | Numbers]) -> dict[str, Any]:
    given = record.get(name)
    table = {**kind._field_defaults, **given} if isinstance(given, dict) else {}
    if table.keys() != set(kind._fields):
        raise ValueError(f"{name} does not have {', '.join(kind._fields)} and nothing else")
    return table


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.40}")
    return value


def _bounds(name: str, values: Any, unlimited: float, kind: str) -> tuple[float, ...]:
    """Read limits, of which null is none: JSON has no infinity."""
    if not isinstance(values, list):
        raise ValueError(f"{name} is {values!r:.40}")
    most = min(float(np.finfo(kind).max), sys.float_info.max)
    for value in values:
        # Compared as they are: a whole number of 400 digits is no float.
        if value is not None and not (type(value) in (int, float) and -most <= value <= most):
            raise ValueError(f"{name} has {value!r:.40}")
    return tuple(unlimited if value is None else float(value) for value in values)


def _kind(dtype: Any, known: Sequence[str]) -> str:
    """Read the name of a type of numbers; NumPy would take much else for one."""
    if dtype not in known:
        raise ValueError(f"dtype is {dtype!r:.40}")
    return str(dtype)
