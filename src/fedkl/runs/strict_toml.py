"""TOML: from files that anybody may have written, read in a moment or refused; and in one line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkl.errors import UserError
from fedkl.runs import files

LARGEST = 2**22
"""Bytes of a file; a config that lists a number for each of 100,000 clients has half as many."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PARTS = 64
# A dotted key of n parts takes tomllib n^2 steps.
_PART = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+"
_DOTTED = re.compile(rf"(?<![\w\"'-])(?:{_PART}){{{_PARTS}}}")


def parse(text: str) -> dict[str, Any]:
    """What a text says.

    Raises:
        ValueError: it is not TOML, or nested so deeply that nobody meant it.
    """
    if len(text) > LARGEST:
        raise ValueError(f"it is longer than {LARGEST:,} characters")
    if _DOTTED.search(text):
        raise ValueError(f"a key has more than {_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read(path: Path) -> dict[str, Any]:
    """What a file says.

    Raises:
        UserError: it cannot be read, or is not TOML.
    """
    with files.explain_os_errors("read", path):
        data = files.read_bytes(path, LARGEST)
    try:
        return parse(data.decode("utf-8"))
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both of this kind.
        raise UserError(f"{path} is not valid TOML: {error}") from error


def inline(value: Any) -> str:
    """A value as TOML has it, in one line.

    Example:
        >>> inline({"gravity": {"uniform": [5.0, 15.0]}, "of two": True})
        '{ gravity = { uniform = [5.0, 15.0] }, "of two" = true }'
    """
    if isinstance(value, str):
        # TOML's strings are JSON's, but for this one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        entries = ", ".join(f"{key_text(key)} = {inline(entry)}" for key, entry in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(inline, value))}]"
    return repr(value)


def key_text(key: str) -> str:
    """A key as TOML has it."""
    return key if _BARE.fullmatch(key) else inline(key)
