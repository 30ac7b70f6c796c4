"""JSON as the standard has it: no NaN, no Infinity, and numbers that come back exactly."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

_CHECKSUM = "sha256"


def encode(record: Mapping[str, Any], indent: int | None = None) -> bytes:
    """A record as strict JSON in ASCII.

    Floats are written with `repr`, which is the shortest text that reads back to the same float.
    Non-finite floats become null. Arrays and scalars of array libraries become lists and numbers.

    Args:
        record: names to numbers, strings, None, lists, arrays and nested mappings.
        indent: spaces per level for a file that people read; None for one line.

    Returns:
        The text, without a line break at the end.

    Raises:
        TypeError: something in the record has no JSON form.
        ValueError: it is nested too deeply.

    Example:
        >>> import numpy as np
        >>> encode({"loss": np.float32(0.5), "kl": float("nan"), "clients": np.arange(3)})
        b'{"loss": 0.5, "kl": null, "clients": [0, 1, 2]}'
    """
    try:
        return json.dumps(_plain(record), allow_nan=False, indent=indent).encode("ascii")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def decode(data: bytes) -> dict[str, Any]:
    """The record that `encode` wrote.

    Raises:
        ValueError: the text is not one strict-JSON object.
    """
    try:
        record = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def encode_sealed(record: Mapping[str, Any]) -> bytes:
    """A record as a file that people read, which carries a checksum of what it says."""
    return encode({**record, _CHECKSUM: _sha256(record)}, indent=2) + b"\n"


def decode_sealed(data: bytes, key: str) -> dict[str, Any]:
    """The record that `encode_sealed` wrote; or one of before there were checksums.

    Args:
        data: what the file holds.
        key: an entry that every such record has, and others have not: a file that was put in the
            place of another fits its own checksum.

    Raises:
        ValueError: it is not valid JSON, does not fit its checksum, or is another file.
    """
    try:
        record = decode(data)
        stated = record.pop(_CHECKSUM, None)
        found = _sha256(record)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from error
    if stated is None and not any(_is_checksum(value) for value in record.values()):
        return record
    # One by another name is damage, too.
    if stated != found:
        raise ValueError("does not fit its checksum: it was edited or damaged")
    if not data.endswith(b"\n"):
        raise ValueError("was cut off at its end")
    if key not in record:
        raise ValueError(f"is another file: it has no {key}")
    return record


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _sha256(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode(record)).hexdigest()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy, and those that behave like them
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        # json.dumps would turn other keys into strings silently, and two could become one.
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"a record's names must be strings, not {wrong[0]!r}")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not strict JSON")
