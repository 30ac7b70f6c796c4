"""TOML: from files that anybody may have written, read in a moment or refused; and in one line."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkl.core.errors import UserError
from fedkl.io import files

LARGEST = 3 * 2**20
"""Bytes of a file; a config that lists a number for each of 100,000 clients has two thirds."""
_PARTS = 8
"""Of a dotted key. One of n takes tomllib n^2 steps, and no setting lies deeper than 4."""
_TABLES = 10_000
"""Of a text; each takes tomllib as long as hundreds of numbers."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
# All that has an end of its own is read to there, so that no quote or dot in it is taken for a
# key's. A text that lacks its end is no TOML, and nothing after it matters.
_LONG_TEXT = r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}+)?+' r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}+)?+"
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]++|\\.)*+"?+|'[^'\n]*+'?+)"""
_NEXT = rf"[ \t]*+\.[ \t]*+{_PART}"
# What has two parts may be a number.
_KEY = rf"{_PART}(?:{_NEXT})?+(?P<tables>(?:{_NEXT}){{1,{_PARTS - 2}}}+)?+(?P<more>{_NEXT})?+"
_HEADER = rf"^[ \t]*+\[{{1,2}}+[ \t]*+(?={_PART}(?:{_NEXT})*+[ \t]*+\])"
_WORD = re.compile(
    rf"#[^\n]*+|{_LONG_TEXT}|(?P<table>{_HEADER}|\{{)|{_KEY}", re.DOTALL | re.MULTILINE
)


def parse(text: str) -> dict[str, Any]:
    """Parse a text.

    Raises:
        ValueError: it is not TOML, or so long, deep or wide that it is no config.
    """
    if len(text) > LARGEST:
        raise ValueError(f"it is longer than {LARGEST:,} characters")
    found = Counter(word.lastgroup for word in _WORD.finditer(text))
    if found["more"]:
        raise ValueError(f"a key has more than {_PARTS} parts")
    if found["table"] + found["tables"] > _TABLES:
        raise ValueError(f"it has more than {_TABLES:,} tables")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read(path: Path) -> dict[str, Any]:
    """Read and parse a file.

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
    """Write a value as TOML has it, in one line.

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
    """Write a key as TOML has it."""
    return key if _BARE.fullmatch(key) else inline(key)
